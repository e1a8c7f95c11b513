"""Runs that outlive processes and machines: the record says what was done, an engine decides who works now."""

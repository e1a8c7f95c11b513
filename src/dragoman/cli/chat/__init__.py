"""`dragoman chat`: `main` reads the command line, `loop` talks at a terminal, `once` answers a script.

`talk` holds the session and its model. `plain_view` and `rich_view` show the events of a run. No other command uses
these files.
"""

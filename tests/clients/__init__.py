"""Programs that people use with language models, run headless: against a scripted upstream, and through the gateway."""

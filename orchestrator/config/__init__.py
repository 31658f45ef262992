"""What the user writes, read, checked and turned into model types: files, secrets and flags."""

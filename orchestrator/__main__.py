"""`python -m orchestrator` is `orchestrate`, for an environment whose scripts are not on the path."""

from orchestrator.cli.main import main

if __name__ == "__main__":
    main()

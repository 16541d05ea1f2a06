"""`python -m fairveil` is the `fairveil` command."""

from fairveil.cli import main

if __name__ == "__main__":
    main()

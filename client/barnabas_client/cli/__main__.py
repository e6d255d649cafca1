"""``python -m barnabas_client.cli``."""

from barnabas_client.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

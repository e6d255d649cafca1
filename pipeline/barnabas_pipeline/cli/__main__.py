"""``python -m barnabas_pipeline.cli``."""

from barnabas_pipeline.cli.run import main

raise SystemExit(main())

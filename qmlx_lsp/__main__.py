"""``python -m qmlx_lsp``: the same as the ``qmlx-lsp`` command."""

from qmlx_lsp.cli.main import main

raise SystemExit(main())

"""File formats of logs: bytes to rows, without any knowledge of who wrote them."""

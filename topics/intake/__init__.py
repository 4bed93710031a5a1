"""How media comes in: from a URL, from the request itself or from an upload, checked and stored by its content."""

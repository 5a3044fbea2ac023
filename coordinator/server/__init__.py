"""The server: asyncio around the pure core."""

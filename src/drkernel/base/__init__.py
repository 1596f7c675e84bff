"""What every room may use: files that are replaced whole, a cache on disk, processes that answer."""

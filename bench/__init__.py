"""What a turn costs, next to the least it could cost and to what a team would build instead. Run with `make bench`."""

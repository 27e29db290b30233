"""One turn: the loop, and the words it is written in. Knows no web, no SQL, no vendor."""

"""Other ways to run a job or a part of it: in the background of a session, its first rows, one checkpoint again."""

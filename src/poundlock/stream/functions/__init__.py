"""The classes a user derives functions from, and the state they keep."""

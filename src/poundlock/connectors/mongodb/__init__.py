"""The MongoDB sink: rows as documents, effectively once by _id and by a field that says when their checkpoint was begun."""

"""The codes of all errors, `PL-0123`: which error has which, and what each means. Nothing here imports another part of the package.

A code is a subject, three digits, and a category, one: what a restart does about it. A subject is what the error is of, such as the
source of Kafka; it is known by the word that an error is raised with (`kind`), else by the error's class, else by the module that
raises it. A subject keeps its number for ever: modules may move between folders, and only their line in the registry moves along.
"""

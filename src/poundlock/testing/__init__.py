"""For the tests of poundlock and of its users: a harness for keyed operators, suites for connectors, a real Kafka broker that comes and goes with the test.

Nothing here is imported by the rest of the package, and naming it loads no more than what is asked for.
"""

from poundlock import lazily

__all__, __getattr__, __dir__ = lazily(globals())

"""For the tests of poundlock and of its users: a real Kafka broker that comes and goes with the test.

Nothing here is imported by the rest of the package.
"""

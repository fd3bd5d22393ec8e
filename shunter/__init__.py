"""The ground floor: the errors a user can meet and where things are kept on disk.

Every other folder may import this package; it imports none of them.
"""

"""The list of parts of a release, and their licences."""

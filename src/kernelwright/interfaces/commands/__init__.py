"""What each command does, behind the parsing of its words."""

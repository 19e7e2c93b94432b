"""Other people's programs and formats, one file each. Their conventions end here."""

"""Images that were made to do harm, and a place to decode them in."""

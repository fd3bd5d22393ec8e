"""What turns results into pages and figures."""

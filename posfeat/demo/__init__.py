"""What ``posfeat demo`` shows: a real pair and a rendered gallery, matched, judged against the truth, on one page."""

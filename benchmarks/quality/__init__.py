"""Quality of every model family on two click logs, beside what is published and the gates that a release must pass."""

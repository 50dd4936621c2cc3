"""A clone that gives a missing server up after a second."""
import pushpull

pushpull.connect(peer_deadline_s=1)

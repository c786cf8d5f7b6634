"""The box announced on the local network: a small responder of multicast DNS, off by default.

`wire` reads and writes packets, `service` knows what there is to tell, `speaker` says when; all
three are pure. `links` has the sockets, `announcing` the thread.
"""

from appliance.discovery.announcing import Announcing
from appliance.discovery.service import host_label

__all__ = ["Announcing", "host_label"]

"""A real Ray of a head and two nodes with one core each, on this host, driven by lines of text.

Prints the address of the dashboard; `lose JOB` kills the node of a job, and prints its id.
"""

import os
import sys

NODES = 2
MEMORY = 80 << 20  # bytes of each object store, which nothing uses


def main():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster
    from ray.job_submission import JobSubmissionClient

    head = {"num_cpus": 0, "include_dashboard": True, "dashboard_port": int(sys.argv[1])}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": MEMORY})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(NODES)]
    by_id = {node.node_id: node for node in nodes}
    address = f"http://{cluster.head_node.webui_url}"
    client = JobSubmissionClient(address)
    print(address, flush=True)
    for line in sys.stdin:
        node = client.get_job_info(line.split()[1]).driver_node_id
        cluster.remove_node(by_id[node], allow_graceful=False)
        print(node, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()

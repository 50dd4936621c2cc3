"""Starts a LocalServer in a thread that ends, and sleeps."""
import threading
import time

import pushpull

CONFIG = """model { external {} } train_config { batch_size: 1 num_steps: 1
  optimizer { momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 1 } } } } }"""
servers = []
thread = threading.Thread(target=lambda: servers.append(pushpull.LocalServer(CONFIG)))
thread.start()
thread.join()
time.sleep(1)  # the server must not have ended with the thread
servers[0].check()
assert servers[0].wait(0) is None
print(f"server pid {servers[0].pid} ", flush=True)
time.sleep(600)

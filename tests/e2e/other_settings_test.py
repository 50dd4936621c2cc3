"""A server is started again with other settings while its worker runs on. The worker's clones start anew with them."""
import re
import signal

from harness import ADAM, MOMENTUM, config_text, main
from administrators import AdministratorTest

L2 = "l2_regularizer { weight: 0.00004 }"


class OtherSettings(AdministratorTest):

    def start_job(self):
        self.server = self.start_server(self.write_config(steps=1000000), log="server0.log")
        self.worker = self.start_worker("run", 2, "--threads=1")
        self.restarts = 0
        self.wait_for_step(20)

    def start_again(self, *flags, config=None):
        """Ends the server after a checkpoint and starts it again. Returns the step that it begins with."""
        self.server.kill(signal.SIGTERM)
        self.assertEqual(self.server.wait(), 143, self.server.text())
        self.restarts += 1
        config = config or self.write_config(steps=1000000)
        self.server = self.start_server(config, "run", *flags, log=f"server{self.restarts}.log")
        return int(re.search(r"serving version (\d+)", self.server.text()).group(1))

    def expect_new_clones(self, begin, times):
        """Expects that the job goes on, and how often the worker has started its clones anew."""
        self.wait_for_step(begin + 20)
        text = self.worker.text()
        self.assertEqual(text.count("the server has come back with other settings"), times, text)

    def test_clones_take_the_settings_of_a_server_that_comes_back(self):
        self.start_job()
        self.expect_new_clones(self.start_again("--tasks=2"), 1)
        self.expect_new_clones(self.start_again("--tasks=1"), 2)
        self.expect_new_clones(self.start_again("--sync=false"), 3)
        self.expect_new_clones(self.start_again(), 4)
        # Settings that only the server reads change nothing for the clones.
        slower = self.write_config("slower.config", steps=2000000, train="save_checkpoints_steps: 50")
        self.expect_new_clones(self.start_again(config=slower), 4)
        regularized = self.folder / "regularized.config"
        # The weights stay as they are, so that the loss stays high until the worker ends.
        text = config_text(steps=1000000, optimizer=MOMENTUM.replace("0.02", "1e-9"))
        self.assertIn(L2, text)
        regularized.write_text(text.replace(L2, L2.replace("0.00004", "1.0")))
        self.expect_new_clones(self.start_again(config=regularized), 5)
        self.worker.kill(signal.SIGTERM)
        self.assertEqual(self.worker.wait(), 143, self.worker.text())
        self.assertGreater(float(re.findall(r"last loss (\d+\.\d+)", self.worker.text())[-1]), 20)

    def expect_refused_after_kill(self, remedy, *flags, config=None):
        """Kills the server. Expects that other settings are refused with the remedy and that the earlier ones work."""
        self.server.kill()
        self.server.wait()
        earlier = self.write_config(steps=1000000)
        refused = super(AdministratorTest, self).start_server(config or earlier, "run", *flags, log="refused.log")
        self.assertEqual(refused.wait(), 65, refused.text())
        self.assertIn(remedy, refused.text())
        server = self.start_server(earlier, log="again.log")
        self.assertIn("from the servers' memory", server.text())

    def test_a_killed_server_is_not_started_with_another_number_of_tasks(self):
        self.start_job()
        self.psctl("checkpoint")
        self.wait_for_step(self.status()["durable_step"] + 20)
        self.expect_refused_after_kill("start with --tasks=1", "--tasks=2")

    def test_a_killed_server_is_not_started_with_another_optimizer(self):
        self.start_job()
        adam = self.write_config("adam.config", steps=1000000, optimizer=ADAM)
        self.expect_refused_after_kill("begin at step 0 after `psctl state clean", config=adam)


if __name__ == "__main__":
    main()

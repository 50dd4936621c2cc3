#include "ps_server/psctl/status_text.h"

#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::Not;

ps::StatusReply RunningJob() {
  ps::StatusReply status;
  status.set_run_id("\x01\x02");
  status.set_epoch(3);
  status.set_version(1200);
  status.set_num_steps(20000);
  status.set_sync(true);
  status.set_num_replicas(4);
  status.set_durable_step(1000);
  status.set_has_checkpoint(true);
  status.set_seconds_since_checkpoint(75);
  status.set_last_checkpoint_seconds(0.44);
  status.set_checkpoints(3);
  status.set_waiting_for("clone 2 of 4 (compute)");
  status.set_waiting_seconds(4.2);
  status.add_late_clones(2);
  status.set_dropped_contributions(14);
  for (uint32_t id = 0; id < 4; ++id) {
    ps::CloneStatus& clone = *status.add_clones();
    clone.set_worker_id(id);
    clone.set_seconds_since_seen(-1);
    if (id == 3) continue;
    clone.set_peer_name("host:7 clone " + std::to_string(id));
    clone.set_seconds_since_seen(0.3 + 20 * id);
    clone.set_alive(id != 1);
    clone.add_replicas(id);
    clone.set_samples_per_step(10 + id);
    clone.mutable_progress()->set_phase("compute");
    clone.mutable_progress()->set_images_per_second(61.7);
    clone.set_contributions(1186 + id);
    clone.set_drops(7 * id);
  }
  ps::Histogram& contributors = *status.mutable_contributors();
  for (const double bound : {0, 1, 2, 3, 6}) contributors.add_upper_bounds(bound);
  for (const uint64_t count : {0, 0, 14, 1100, 80, 6}) contributors.add_counts(count);
  return status;
}

TEST(StatusTextTest, ShowsTheJobAndATableOfItsClones) {
  EXPECT_EQ(
      FormatStatus(RunningJob(), "127.0.0.1:2222"),
      "job 0102 at 127.0.0.1:2222: sync, epoch 3\n"
      "step 1200 of 20000 (6.0%); checkpoint of step 1000, 75s ago (took 0.4 s); "
      "3 published since the server started\n"
      "4 replicas\n"
      "waiting for clone 2 of 4 (compute), 4.2s\n"
      "clone  state       replicas  samples  seen  phase    img/s  contributions  drops  peer\n"
      "0      alive       0         10       0.3s  compute  62     1186           0      host:7 "
      "clone 0\n"
      "1      lost        1         11       20s   -        -      1187           7      host:7 "
      "clone 1\n"
      "2      late        2         12       40s   compute  62     1188           14     host:7 "
      "clone 2\n"
      "3      never seen  -         -        -     -        -      0              0      -\n"
      "contributors: 2 in 14, 3 in 1100, 4 to 6 in 80, 7 and more in 6 steps\n"
      "contributions dropped 14, void 0; pushes repeated 0; steps rolled back 0\n");
}

TEST(StatusTextTest, ACloneThatSaidThatItEndsIsNotLost) {
  ps::StatusReply status = RunningJob();
  status.mutable_clones(1)->set_left(true);
  const std::string text = FormatStatus(status, "127.0.0.1:2222");
  EXPECT_TRUE(absl::StrContains(text, "\n1      left        1 ")) << text;
  EXPECT_FALSE(absl::StrContains(text, "lost")) << text;
}

TEST(StatusTextTest, NamesTheClonesOfEachDevice) {
  ps::StatusReply status = RunningJob();
  status.mutable_clones(0)->mutable_arithmetic()->set_device("the CPU (avx2) in fp32");
  status.mutable_clones(1)->mutable_arithmetic()->set_device("a\nb");
  status.mutable_clones(2)->mutable_arithmetic()->set_device("the CPU (avx2) in fp32");
  EXPECT_THAT(FormatStatus(status, "a"),
              HasSubstr("\nclone 1 computes on a?b\n"
                        "clones 0,2 compute on the CPU (avx2) in fp32\ncontributors: "));
}

TEST(StatusTextTest, ShowsEndsFailuresAndEvictions) {
  ps::StatusReply status = RunningJob();
  status.mutable_clones(2)->set_evicted(true);
  status.mutable_clones(2)->set_alive(false);
  status.mutable_clones(2)->clear_replicas();
  status.mutable_clones(2)->clear_samples_per_step();
  status.set_stopped("step 3: clone 1 has a\nnon-finite value");
  status.set_training_done(true);
  status.set_checkpoint_failures(2);
  const std::string text = FormatStatus(status, "a");
  EXPECT_THAT(text, HasSubstr("\n2      evicted     -         -        40s"));
  EXPECT_THAT(text, HasSubstr("training was stopped: step 3: clone 1 has a?non-finite value\n"));
  EXPECT_THAT(text, HasSubstr("training is done\n"));
  EXPECT_THAT(text, HasSubstr("2 failed"));
}

TEST(StatusTextTest, ShowsAJobThatHasJustBegun) {
  ps::StatusReply status;
  status.set_seconds_since_checkpoint(-1);
  status.set_waiting_for("the first clone");
  status.mutable_staleness()->add_counts(0);
  const std::string text = FormatStatus(status, "a");
  EXPECT_THAT(text, HasSubstr("step 0; no checkpoint; 0 published since the server started\n"));
  EXPECT_THAT(text, HasSubstr("no clone is known\n"));
  status.set_has_checkpoint(true);  // of the declared variables of an external model
  EXPECT_THAT(FormatStatus(status, "a"),
              HasSubstr("step 0; checkpoint of step 0; 0 published since the server started\n"));
  EXPECT_THAT(text, Not(HasSubstr("staleness")));
  status.mutable_staleness()->set_counts(0, 5);
  EXPECT_THAT(FormatStatus(status, "a"), HasSubstr("staleness: 0 and more in 5 pushes\n"));
}

TEST(StatusTextTest, NamesOfClonesCannotControlTheTerminal) {
  ps::StatusReply status = RunningJob();
  status.mutable_clones(0)->set_peer_name("host\x1b[2J\r\nfake");
  status.mutable_clones(0)->mutable_progress()->set_phase("\x1b]0;x\a");
  const std::string text = FormatStatus(status, "a");
  EXPECT_THAT(text, HasSubstr("host?[2J??fake"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace pushpull

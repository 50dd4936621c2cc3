#include "scripts/bench/step/torch_child.h"

#include <csignal>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<TorchChild> Shell(const std::string& script) {
  std::signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<std::unique_ptr<TorchChild>> child = TorchChild::Start({"sh", "-c", script});
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : nullptr;
}

TEST(TorchChild, ReturnsOneAnswerPerLine) {
  const auto child = Shell(
      "while read -r a b; do printf '{\"verb\": \"%s\", ' $a; sleep 0.05;"
      " printf '\"rest\": %s}\\n' $b; done");
  ASSERT_NE(child, nullptr);
  for (int i = 1; i < 4; ++i) {
    const absl::StatusOr<nlohmann::json> answer =
        child->Ask("run " + std::to_string(i), absl::Minutes(1));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ((*answer)["verb"].get<std::string>(), "run");
    EXPECT_EQ((*answer)["rest"], i);
  }
}

TEST(TorchChild, KeepsAnswersThatArriveTogether) {
  const auto child = Shell("printf '{\"a\": 1}\\n{\"a\": 2}\\n'; cat > /dev/null");
  ASSERT_NE(child, nullptr);
  EXPECT_EQ((*child->Ask("x", absl::Minutes(1)))["a"], 1);
  EXPECT_EQ((*child->Ask("x", absl::Minutes(1)))["a"], 2);
}

TEST(TorchChild, ReturnsErrorsOfTheChild) {
  const auto child =
      Shell("echo '{\"error\": \"OutOfMemoryError: 3 GiB\"}'; read -r x; echo '{}'; read -r x");
  ASSERT_NE(child, nullptr);
  const absl::Status status = child->Ask("run", absl::Minutes(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "OutOfMemoryError: 3 GiB");
  EXPECT_TRUE(child->Ask("run", absl::Minutes(1)).ok());
}

TEST(TorchChild, ReportsAMissingAnswer) {
  const auto ended = Shell("read -r x; exit 1");
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->Ask("run", absl::Minutes(1)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended->Ask("run", absl::Minutes(1)).status().code(), absl::StatusCode::kUnavailable);
  const auto silent = Shell("cat > /dev/null");
  ASSERT_NE(silent, nullptr);
  EXPECT_EQ(silent->Ask("run", absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const auto talkative = Shell("read -r x; echo Traceback; read -r x");
  ASSERT_NE(talkative, nullptr);
  const absl::Status status = talkative->Ask("run", absl::Minutes(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("\"Traceback\", expected a line of JSON"));
  EXPECT_EQ(TorchChild::Start({"no-such-python"}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pushpull

#include "common/cli/print_result.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"

namespace pushpull {
namespace {

// Makes stdout lead where the descriptor leads. Only for the process of a death test.
void LeadStdoutTo(int descriptor) {
  ASSERT_GE(::dup2(descriptor, STDOUT_FILENO), 0);
  ::close(descriptor);
}

// Prints on the real stdout, and exits with 0 if that succeeds, 1 for an error that may pass and 2
// for another one. The error goes to stderr.
void PrintAndExit(absl::string_view text) {
  const absl::Status status = PrintResult(std::cout, text);
  std::cerr << status.message();
  std::_Exit(status.ok() ? 0 : IsPassing(status) ? 1 : 2);
}

TEST(PrintResultTest, WritesTheText) {
  std::ostringstream out;
  EXPECT_TRUE(PrintResult(out, "{}\n").ok());
  EXPECT_EQ(out.str(), "{}\n");
}

TEST(PrintResultDeathTest, AFullDiskIsAnErrorThatMayPass) {
  for (const size_t size : {size_t{3}, size_t{1} << 20}) {
    EXPECT_EXIT(
        {
          LeadStdoutTo(::open("/dev/full", O_WRONLY));
          PrintAndExit(std::string(size, 'x'));
        },
        testing::ExitedWithCode(1),
        "the result cannot be written to stdout: No space left on device")
        << size;
  }
}

TEST(PrintResultDeathTest, AClosedStdoutIsAnError) {
  EXPECT_EXIT(
      {
        ::close(STDOUT_FILENO);
        PrintAndExit("{}\n");
      },
      testing::ExitedWithCode(2), "the result cannot be written to stdout: Bad file descriptor");
}

TEST(PrintResultDeathTest, AReaderThatHasEndedWantsNoMore) {
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_IGN);
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        ::close(ends[0]);
        LeadStdoutTo(ends[1]);
        PrintAndExit("{}\n");
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pushpull

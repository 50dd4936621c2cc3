// Pins the bytes of a checkpoint, because installed programs must be able to read them. After a
// deliberate change of the format, raise CheckpointManifest::kFormatVersion and run this test with
// PUSHPULL_UPDATE_GOLDEN=1.
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "tests/common/checkpoint/checkpoint_testing.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

constexpr char kFolder[] = PUSHPULL_SOURCE_DIR "/tests/golden/checkpoint";

TEST(GoldenCheckpoint, BytesHaveNotChanged) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem written;
  ASSERT_EQ(written.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_EQ(SaveTestCheckpoint(written, "/d", layout, 3, 12000, 1), absl::OkStatus());
  PosixFileSystem files;
  for (const char* name : {"MANIFEST.json", "shard-00000-of-00001.safetensors"}) {
    const std::string bytes = *ReadWholeFile(written, absl::StrCat("/d/ckpt-00012000/", name));
    const std::string path = absl::StrCat(kFolder, "/ckpt-00012000/", name);
    if (std::getenv("PUSHPULL_UPDATE_GOLDEN") != nullptr) {
      ASSERT_EQ(MakeDirectories(files, absl::StrCat(kFolder, "/ckpt-00012000")), absl::OkStatus());
      ASSERT_EQ(WriteFileAtomically(files, path, bytes), absl::OkStatus());
    }
    const auto golden = ReadWholeFile(files, path);
    ASSERT_TRUE(golden.ok()) << golden.status();
    EXPECT_TRUE(*golden == bytes) << path << " differs";
  }
}

TEST(GoldenCheckpoint, CanBeRead) {
  const VariableLayout layout = TestLayout(3);
  PosixFileSystem files;
  const auto checkpoint = OpenNewestCheckpoint(files, kFolder, {kTestRunId, &layout});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::vector<float> ema(layout.total_elements());
  ASSERT_EQ((*checkpoint)->ReadEma(layout, {0, layout.total_elements()}, ema.data()),
            absl::OkStatus());
  EXPECT_EQ(ema, MakeTestState(layout, 12000).ema);
}

TEST(GoldenCheckpoint, PythonReadsTheSameTensors) {
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
  const std::string command =
      absl::StrCat("python3 ", PUSHPULL_SOURCE_DIR, "/tests/common/read_formats.py safetensors ",
                   kFolder, "/ckpt-00012000/shard-00000-of-00001.safetensors");
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output.push_back(static_cast<char>(c));
  ASSERT_EQ(pclose(pipe), 0);
  const VariableLayout layout = TestLayout(3);
  const float first = MakeTestState(layout, 12000).weights[0];
  char expected[64];
  snprintf(expected, sizeof(expected), "Net/Conv/weights F32 [3, 3, 1, 4] %.9g\n", first);
  EXPECT_NE(output.find(expected), std::string::npos) << output << "expected " << expected;
}

}  // namespace
}  // namespace pushpull

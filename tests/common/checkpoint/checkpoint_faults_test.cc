// Damaged files and failed writes: recovery must always find the last good checkpoint whole, and
// must never accept damaged data.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/retention.h"
#include "common/checkpoint/train_dir.h"
#include "tests/common/checkpoint/checkpoint_testing.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

// The files of a published checkpoint.
constexpr const char* kFiles[] = {"/d/ckpt-00000100/MANIFEST.json",
                                  "/d/ckpt-00000100/shard-00000-of-00001.safetensors"};

TEST(CheckpointCorruption, DetectsEveryTruncation) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 1, 100, 1), absl::OkStatus());
  for (const std::string path : kFiles) {
    const std::string good = *ReadWholeFile(files, path);
    for (size_t size = 0; size < good.size(); ++size) {
      files.Corrupt(path, good.substr(0, size));
      const absl::Status status = Checkpoint::Open(files, "/d", 100).status();
      ASSERT_TRUE(absl::IsDataLoss(status)) << path << " cut to " << size;
      if (path == kFiles[0]) continue;
      ASSERT_THAT(std::string(status.message()),
                  testing::HasSubstr(absl::StrCat(path, ": ", size, " bytes, expected ")));
    }
    files.Corrupt(path, good + std::string(1, '\0'));
    ASSERT_TRUE(absl::IsDataLoss(Checkpoint::Open(files, "/d", 100).status()));
    files.Corrupt(path, good);
    ASSERT_TRUE(Checkpoint::Open(files, "/d", 100).ok());
  }
}

TEST(CheckpointCorruption, DetectsEveryFlippedBit) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 1, 100, 1), absl::OkStatus());
  for (const std::string path : kFiles) {
    const std::string good = *ReadWholeFile(files, path);
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] ^= static_cast<char>(1 << (bit % 8));
      files.Corrupt(path, bad);
      const absl::Status status = Checkpoint::Open(files, "/d", 100).status();
      ASSERT_TRUE(absl::IsDataLoss(status)) << path << " bit " << bit;
      if (path == kFiles[0]) continue;
      ASSERT_THAT(std::string(status.message()),
                  testing::HasSubstr(absl::StrCat(path, ": SHA-256 is ")));
    }
    files.Corrupt(path, good);
  }
}

// Simulates a writer that computed a wrong tensor checksum: the file's digest is right, the
// tensor's checksum is not.
TEST(CheckpointCorruption, VerifiesTensorChecksums) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 1, 100, 1), absl::OkStatus());
  CheckpointManifest manifest = *ParseManifest(*ReadWholeFile(files, kFiles[0]), kFiles[0]);
  manifest.files[0].tensors[4].crc32c ^= 1;
  files.Corrupt(kFiles[0], SerializeManifest(manifest));
  const absl::Status status = Checkpoint::Open(files, "/d", 100).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("CRC32C of Net/"));
}

// Does what a server does at step 200 after it saved step 100.
absl::Status SaveNext(MemoryFileSystem& files, const VariableLayout& layout, uint64_t step) {
  return SaveTestCheckpoint(files, "/d", layout, 2, step, 2);
}

// Says which of the two checkpoints recovery may find as the newest.
enum class Newest { kOld, kNew, kEither };

void ExpectGoodNewest(MemoryFileSystem& files, const VariableLayout& layout, Newest expected,
                      uint64_t new_step, const std::string& label) {
  const auto checkpoint = OpenNewestCheckpoint(files, "/d", {kTestRunId, &layout});
  ASSERT_TRUE(checkpoint.ok()) << label << ": " << checkpoint.status();
  const uint64_t step = (*checkpoint)->manifest().step;
  const uint64_t epoch = (*checkpoint)->manifest().epoch;
  const bool is_new = epoch == 2 && step == new_step;
  const bool is_old = epoch == 1 && step == 100;
  ASSERT_TRUE((is_new && expected != Newest::kOld) || (is_old && expected != Newest::kNew))
      << label << ": step " << step << " of epoch " << epoch;
  std::vector<float> weights(layout.total_elements());
  ASSERT_EQ((*checkpoint)->ReadWeights(layout, {0, layout.total_elements()}, weights.data()),
            absl::OkStatus());
  ASSERT_EQ(weights, MakeTestState(layout, step).weights) << label;
}

bool HasLeftovers(MemoryFileSystem& files) {
  const std::vector<std::string> names = *files.List("/d");
  for (const std::string& name : names) {
    if (name[0] == '.') return true;
  }
  return false;
}

struct FaultCase {
  std::string name;
  FileFault::Kind kind;
  bool lasting;
  uint64_t new_step;  // 100 publishes the step of the good checkpoint again
  bool exchange = true;

  friend void PrintTo(const FaultCase& param, std::ostream* out) { *out << param.name; }
};

class CheckpointFaultTest : public ::testing::TestWithParam<FaultCase> {
 protected:
  std::unique_ptr<MemoryFileSystem> Prepare() const {
    auto files = std::make_unique<MemoryFileSystem>();
    if (!GetParam().exchange) files->RefuseExchange();
    EXPECT_EQ(files->MakeDirectory("/d"), absl::OkStatus());
    EXPECT_EQ(files->SyncDirectory("/"), absl::OkStatus());
    EXPECT_EQ(SaveTestCheckpoint(*files, "/d", layout_, 1, 100, 1), absl::OkStatus());
    return files;
  }

  // Fails one call and loses unsynced data in one way.
  void RunOne(int64_t call, Survival survival, uint64_t seed) {
    const FaultCase& param = GetParam();
    const std::string label = param.name + " at call " + std::to_string(call);
    const std::unique_ptr<MemoryFileSystem> files = Prepare();
    files->SetFault(FileFault{param.kind, call, param.lasting});
    const absl::Status saved = SaveNext(*files, layout_, param.new_step);
    const bool crashed = files->crashed();
    files->SetFault(std::nullopt);
    if (!crashed) {
      EXPECT_TRUE(saved.ok() || IsPassing(saved)) << label << ": " << saved;
      // A single failed call leaves no files behind. If every later call fails too, the cleanup
      // cannot succeed either.
      const Newest expected = saved.ok()      ? Newest::kNew
                              : param.lasting ? Newest::kEither
                                              : Newest::kOld;
      ExpectGoodNewest(*files, layout_, expected, param.new_step, label);
      if (expected == Newest::kOld) {
        EXPECT_FALSE(HasLeftovers(*files)) << label << ": " << saved;
      }
    }
    // A checkpoint that was reported as saved must survive the power cut.
    files->Reboot(survival, seed);
    ExpectGoodNewest(*files, layout_, saved.ok() ? Newest::kNew : Newest::kEither, param.new_step,
                     label + " after reboot");
    const auto dir = TrainDir::Open(files.get(), "/d");
    ASSERT_TRUE(dir.ok()) << dir.status();
    (*dir)->Sweep();  // a server does this once it has recovered
    EXPECT_FALSE(HasLeftovers(*files)) << label;
    ASSERT_EQ(SaveNext(*files, layout_, param.new_step), absl::OkStatus()) << label;
    ExpectGoodNewest(*files, layout_, Newest::kNew, param.new_step, label + " after the next save");
  }

  const VariableLayout layout_ = TestLayout(300);
};

TEST_P(CheckpointFaultTest, SurvivesAFaultAtEveryCall) {
  std::unique_ptr<MemoryFileSystem> files = Prepare();
  files->SetFault(std::nullopt);
  ASSERT_EQ(SaveNext(*files, layout_, GetParam().new_step), absl::OkStatus());
  const int64_t calls = files->calls();
  ASSERT_GT(calls, 15);
  for (int64_t call = 0; call <= calls; ++call) {
    RunOne(call, Survival::kNothing, 0);
    RunOne(call, Survival::kEverything, 0);
    for (uint64_t seed = 1; seed <= 2; ++seed) RunOne(call, Survival::kRandom, seed);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CheckpointFaultTest,
    ::testing::Values(FaultCase{"DiskFull", FileFault::Kind::kDiskFull, false, 200},
                      FaultCase{"DiskStaysFull", FileFault::Kind::kDiskFull, true, 200},
                      FaultCase{"IoError", FileFault::Kind::kIoError, false, 200},
                      FaultCase{"IoErrorStays", FileFault::Kind::kIoError, true, 200},
                      FaultCase{"ShortWrite", FileFault::Kind::kShortWrite, false, 200},
                      FaultCase{"Crash", FileFault::Kind::kCrash, false, 200},
                      FaultCase{"IoErrorSameStep", FileFault::Kind::kIoError, false, 100},
                      FaultCase{"CrashSameStep", FileFault::Kind::kCrash, false, 100},
                      FaultCase{"IoErrorSameStepWithoutExchange", FileFault::Kind::kIoError, false,
                                100, false}),
    [](const auto& info) { return info.param.name; });

TEST(TrainDirFaults, AServerOfAnOlderEpochCannotPublish) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  ASSERT_EQ((*dir)->WriteEpoch(5), absl::OkStatus());
  ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 5, 100, 1), absl::OkStatus());
  const std::string good = *ReadWholeFile(files, kFiles[0]);
  ASSERT_EQ((*dir)->WriteEpoch(6), absl::OkStatus());
  for (const uint64_t step : {100, 101}) {
    const absl::Status status = SaveTestCheckpoint(files, "/d", layout, 5, step, 1);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/d/EPOCH holds 6"));
  }
  EXPECT_EQ(*ReadWholeFile(files, kFiles[0]), good)
      << "an existing checkpoint of that name is kept";
  EXPECT_EQ(*ListCheckpoints(files, "/d"), std::vector<uint64_t>{100});
  EXPECT_EQ(SaveTestCheckpoint(files, "/d", layout, 6, 101, 1), absl::OkStatus());
}

TEST(TrainDirFaults, TheEpochNeverDecreases) {
  for (int64_t call = 0; call < 12; ++call) {
    for (const Survival survival : {Survival::kNothing, Survival::kEverything, Survival::kRandom}) {
      MemoryFileSystem files;
      ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
      ASSERT_EQ(files.SyncDirectory("/"), absl::OkStatus());
      uint64_t written = 1;
      {
        const auto dir = TrainDir::Open(&files, "/d");
        ASSERT_TRUE(dir.ok());
        ASSERT_EQ((*dir)->WriteEpoch(1), absl::OkStatus());
        files.SetFault(FileFault{FileFault::Kind::kCrash, call});
        if ((*dir)->WriteEpoch(2).ok()) written = 2;
      }
      files.Reboot(survival, 9);
      const auto dir = TrainDir::Open(&files, "/d");
      ASSERT_TRUE(dir.ok());
      const absl::StatusOr<uint64_t> epoch = ReadEpoch(files, "/d");
      ASSERT_TRUE(epoch.ok()) << epoch.status();
      EXPECT_GE(*epoch, written) << "crash at call " << call;
      EXPECT_LE(*epoch, 2u) << "crash at call " << call;
      EXPECT_EQ((*dir)->WriteEpoch(3), absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace pushpull

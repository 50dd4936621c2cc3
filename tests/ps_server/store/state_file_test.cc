// Tests how a server treats the state file it finds at its start: damaged files, files of other
// runs, and files of killed processes.
#include "ps_server/store/state_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/base/random.h"
#include "ps_server/store/variable_store.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/testkit/store/state_dir_test_util.h"

namespace pushpull {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class StateFileTest : public StateDirTest {
 protected:
  StateFileTest()
      : StateDirTest(*VariableLayout::Create({MakeVariable("w", {3000})}), MakeAdam()) {}

  // Writes a state file with versions 1 and 2.
  void Prepare() {
    const auto store = Open(dir_.options());
    FillVersion(store.get(), 1, 1, "one");
    EXPECT_TRUE(ApplyVersion(store.get(), 1, "two"));
  }
  std::string Read() {
    std::ifstream file(dir_.file(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void Write(const std::string& bytes) {
    std::ofstream(dir_.file(), std::ios::binary | std::ios::trunc) << bytes;
  }
  // Returns the header that fits the options, the layout and the optimizer of this fixture.
  StateHeader Header() {
    const VariableStoreOptions options = dir_.options();
    return MakeStateHeader(options.owner, {0, layout_.total_elements()}, options.max_metadata_bytes,
                           layout_, optimizer_);
  }
};

TEST_F(StateFileTest, DecodesHeldWordsAndRefusesAllOtherWords) {
  int valid = 0;
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      for (const int newest : {0, 1}) {
        const HeldWord word{{first, second}, newest};
        HeldWord decoded;
        if ((first || second) && !word.whole[newest]) {
          EXPECT_FALSE(HeldWord::Decode(word.Encode(), &decoded)) << "newest is not whole";
          continue;
        }
        ASSERT_TRUE(HeldWord::Decode(word.Encode(), &decoded));
        EXPECT_EQ(decoded.whole[0], first);
        EXPECT_EQ(decoded.whole[1], second);
        EXPECT_EQ(decoded.newest, newest);
        ++valid;
        for (int bit = 0; bit < 64; ++bit) {
          EXPECT_FALSE(HeldWord::Decode(word.Encode() ^ (uint64_t{1} << bit), &decoded)) << bit;
        }
      }
    }
  }
  EXPECT_EQ(valid, 6);
  HeldWord decoded;
  EXPECT_FALSE(HeldWord::Decode(0, &decoded));
}

TEST_F(StateFileTest, RefusesAHeaderWithAnyFlippedBit) {
  Prepare();
  const std::string good = Read();
  const StateHeader expected = Header();
  EXPECT_EQ(DescribeHeaderMismatch(good, expected), "");
  for (size_t byte = 0; byte < sizeof(StateHeader); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good.substr(0, sizeof(StateHeader));
      bad[byte] ^= 1 << bit;
      ASSERT_NE(DescribeHeaderMismatch(bad, expected), "") << "byte " << byte << " bit " << bit;
    }
  }
  std::string bad = good;
  bad[100] ^= 1;
  Write(bad);
  const auto store = Open(dir_.options());
  EXPECT_THAT(store->fresh_reason(), HasSubstr("damaged"));
  EXPECT_FALSE(store->newest().has_value());
  FillVersion(store.get(), 0, 1, "");
  EXPECT_EQ(store->newest(), 0u);
}

TEST_F(StateFileTest, ATruncatedFileIsNotUsed) {
  Prepare();
  const std::string good = Read();
  for (const size_t size : {size_t{0}, size_t{1}, sizeof(StateHeader) - 1, sizeof(StateHeader),
                            size_t{4096}, size_t{20000}, good.size() - 1}) {
    Write(good.substr(0, size));
    const auto store = Open(dir_.options());
    EXPECT_FALSE(store->newest().has_value()) << size;
    EXPECT_NE(store->fresh_reason(), "") << size;
  }
  Write(good + "x");
  EXPECT_THAT(Open(dir_.options())->fresh_reason(), HasSubstr("damaged"));
}

TEST_F(StateFileTest, ADamagedRecordLosesOnlyItsVersion) {
  Prepare();
  const std::string good = Read();
  const StateHeader header = Header();
  for (const int64_t offset : {0, 9, 17, 30, 88}) {
    std::string bad = good;
    bad[RecordOffset(header, 1) + offset] ^= 4;
    Write(bad);
    const auto store = Open(dir_.options());
    EXPECT_EQ(store->newest(), 1u) << offset;
    EXPECT_EQ(store->held().size(), 1u) << offset;
  }
  std::string bad = good;
  bad[RecordOffset(header, 1) + 23] = '\x7f';  // a metadata length far outside the file
  Write(bad);
  EXPECT_EQ(Open(dir_.options())->newest(), 1u);
}

TEST_F(StateFileTest, ADamagedControlWordLosesAllVersions) {
  Prepare();
  std::string bad = Read();
  bad[kStateControlOffset] ^= 1;
  Write(bad);
  const auto store = Open(dir_.options());
  EXPECT_FALSE(store->newest().has_value());
  FillVersion(store.get(), 0, 1, "");
  EXPECT_EQ(store->newest(), 0u);
}

TEST_F(StateFileTest, FilesOfOtherRunsOrModelsAreNotUsed) {
  const auto reason = [&](const VariableStoreOptions& options, const VariableLayout& layout,
                          const OptimizerSpec& optimizer) {
    Prepare();
    const auto store = VariableStore::Open(options, layout, optimizer);
    EXPECT_TRUE(store.ok()) << store.status();
    EXPECT_FALSE((*store)->newest().has_value());
    return (*store)->fresh_reason();
  };
  VariableStoreOptions other = dir_.options();
  other.owner.run_id = "fedcba9876543210";
  EXPECT_THAT(reason(other, layout_, optimizer_),
              HasSubstr("it belongs to run 30313233343536373839616263646566, this is run 6665"));
  const VariableLayout renamed = *VariableLayout::Create({MakeVariable("v", {3000})});
  EXPECT_THAT(reason(dir_.options(), renamed, optimizer_), HasSubstr("another model"));
  EXPECT_THAT(reason(dir_.options(), layout_, MakeRmsProp()),
              HasSubstr("vectors Adam Adam_1 ExponentialMovingAverage, this run has RMSProp"));
  other = dir_.options();
  other.owner.shard = 1;
  other.owner.tasks = 2;
  EXPECT_THAT(reason(other, layout_, optimizer_), HasSubstr("shard 0 of 1, this is shard 1 of 2"));
  other = dir_.options();
  other.max_metadata_bytes = 100000;
  EXPECT_THAT(reason(other, layout_, optimizer_), HasSubstr("records of 4096"));

  Write("not a state file at all" + std::string(100000, '\n'));
  EXPECT_THAT(Open(dir_.options())->fresh_reason(), HasSubstr("no state file: it begins with"));
}

TEST_F(StateFileTest, AFileFromBeforeTheMachineStartedIsNotUsed) {
  StateHeader before = Header();
  std::memset(before.boot_id, '7', 36);
  std::string bytes(reinterpret_cast<const char*>(&before), sizeof(before));
  EXPECT_THAT(DescribeHeaderMismatch(bytes, Header()), HasSubstr("checksum"));
  // A header of an earlier boot with a correct checksum. The roles of the two headers are swapped,
  // because only the checksum of `now` is correct.
  const StateHeader now = Header();
  const std::string good(reinterpret_cast<const char*>(&now), sizeof(now));
  EXPECT_EQ(DescribeHeaderMismatch(good, now), "");
  EXPECT_THAT(DescribeHeaderMismatch(good, before), HasSubstr("before the machine last started"));
}

// Returns the contents of every file in the folder by name.
std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

TEST_F(StateFileTest, AMismatchedFileIsUntouchedUntilItIsSetAside) {
  Prepare();
  const std::string good = Read();
  VariableStoreOptions other = dir_.options();
  other.owner.run_id = "fedcba9876543210";
  {
    const auto store = Open(other);
    EXPECT_TRUE(absl::IsFailedPrecondition(
        VariableStore::Open(dir_.options(), layout_, optimizer_).status()))
        << "the mismatched file must be locked too";
    FillVersion(store.get(), 5, 1, "");
  }
  const std::map<std::string, std::string> files = FilesIn(dir_.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files.at("state.aside"), good);
  EXPECT_EQ(Open(other)->newest(), 5u);
  // The next file that is set aside gets a different name.
  FillVersion(Open(dir_.options()).get(), 6, 1, "");
  EXPECT_EQ(FilesIn(dir_.path()).at("state.aside"), good);
  EXPECT_EQ(FilesIn(dir_.path()).count("state.aside-2"), 1u);
}

// The log has said that the file is not used, so somebody may remove it at any time.
TEST_F(StateFileTest, AMismatchedFileMayBeRemovedBeforeItIsSetAside) {
  Prepare();
  VariableStoreOptions other = dir_.options();
  other.owner.run_id = "fedcba9876543210";
  {
    const auto store = Open(other);
    std::filesystem::remove(dir_.file());
    FillVersion(store.get(), 5, 1, "");
  }
  EXPECT_EQ(FilesIn(dir_.path()).size(), 1u);
  EXPECT_EQ(Open(other)->newest(), 5u);
}

TEST_F(StateFileTest, AStoreThatIsNotAdoptedLeavesTheFolderUnchanged) {
  Prepare();
  const std::map<std::string, std::string> before = FilesIn(dir_.path());
  VariableStoreOptions other = dir_.options();
  other.owner.run_id = "fedcba9876543210";
  {
    const auto store = Open(other);
    EXPECT_EQ(FilesIn(dir_.path()).at("state"), before.at("state"));
    ASSERT_TRUE(store->BeginFill(5).ok());
    ASSERT_TRUE(store->Commit(1, "").ok());
  }
  EXPECT_EQ(FilesIn(dir_.path()), before);
}

TEST_F(StateFileTest, IgnoresAFileThatAKilledProcessHadNotAdopted) {
  std::ofstream(dir_.file() + ".new", std::ios::binary) << std::string(100, 'x');
  const auto store = Open(dir_.options());
  EXPECT_EQ(store->fresh_reason(), "there was no state file");
  FillVersion(store.get(), 3, 1, "");
  EXPECT_EQ(FilesIn(dir_.path()).size(), 1u);
}

// A first start that is killed early, for example because memory runs out, leaves no run_id, so
// each further one is of another run.
TEST_F(StateFileTest, AStartOfAnotherRunUsesTheRoomOfAKilledOneInItsFolder) {
  VariableStoreOptions options = dir_.options();
  options.owner.folder_identity = "inode 17 of 5.5";
  std::map<std::string, std::string> left;
  {
    const auto killed = Open(options);
    left = FilesIn(dir_.path());
  }
  ASSERT_EQ(left.size(), 1u);
  const auto& [name, contents] = *left.begin();
  std::ofstream(dir_.path() + "/" + name, std::ios::binary) << contents;
  VariableStoreOptions elsewhere = options;
  elsewhere.owner.folder_identity = "inode 18 of 6.5";
  elsewhere.name = "elsewhere";
  {
    const auto other = Open(elsewhere);
    EXPECT_EQ(FilesIn(dir_.path()).size(), 2u) << "the file of another folder is not touched";
  }
  options.owner.run_id = "fedcba9876543210";
  options.name = "next";
  FillVersion(Open(options).get(), 3, 1, "");
  EXPECT_THAT(FilesIn(dir_.path()), ElementsAre(Pair("next", _)));
  EXPECT_EQ(Open(options)->newest(), 3u);
}

TEST_F(StateFileTest, ACopiedTrainDirDoesNotUseTheStateOfTheOriginal) {
  VariableStoreOptions original = dir_.options();
  original.owner.folder_identity = "inode 17 of 5.5";
  original.owner.train_dir = "/runs/original";
  FillVersion(Open(original).get(), 1, 1, "");
  VariableStoreOptions moved = original;
  moved.owner.train_dir = "/runs/moved";
  EXPECT_EQ(Open(moved)->newest(), 1u) << "a renamed folder must count as the same folder";
  VariableStoreOptions copy = moved;
  copy.owner.folder_identity = "inode 18 of 6.5";
  const auto store = Open(copy);
  EXPECT_FALSE(store->newest().has_value());
  EXPECT_THAT(store->fresh_reason(), HasSubstr("belongs to the train_dir that was /runs/original"));
}

// A task on another machine may have started before its train_dir was visible there.
TEST_F(StateFileTest, AFileMadeBeforeItsTrainDirBelongsToTheRunAndIsBoundToTheFolder) {
  VariableStoreOptions early = dir_.options();
  early.owner.folder_identity = "";
  FillVersion(Open(early).get(), 1, 1, "");
  VariableStoreOptions later = early;
  later.owner.folder_identity = "inode 17 of 5.5";
  const std::string before = Read().substr(0, sizeof(StateHeader));
  EXPECT_EQ(Open(later)->newest(), 1u);
  EXPECT_EQ(Read().substr(0, sizeof(StateHeader)), before) << "nothing changes before a restore";
  {
    const auto store = Open(later);
    ASSERT_EQ(store->newest(), 1u);
    ASSERT_TRUE(store->AdoptFile().ok());
    EXPECT_TRUE(ApplyVersion(store.get(), 1, "two"));
  }
  EXPECT_EQ(Open(later)->newest(), 2u);
  VariableStoreOptions copy = later;
  copy.owner.folder_identity = "inode 18 of 6.5";
  EXPECT_FALSE(Open(copy)->newest().has_value());
  VariableStoreOptions other = early;
  other.owner.run_id = std::string(16, 'x');
  EXPECT_FALSE(Open(other)->newest().has_value());
}

TEST_F(StateFileTest, ATrainDirThatIsNotThereDoesNotEraseItsIdentity) {
  StateHeader known = Header();
  std::strcpy(known.folder_identity, "inode 17 of 5.5");
  StateHeader unknown = Header();
  std::memset(unknown.folder_identity, 0, sizeof(unknown.folder_identity));
  std::strcpy(unknown.train_dir, "/elsewhere");
  EXPECT_TRUE(SetFolder(unknown, &known));
  EXPECT_EQ(HeaderText(known.folder_identity), "inode 17 of 5.5");
  EXPECT_EQ(HeaderText(known.train_dir), "/elsewhere");
}

TEST_F(StateFileTest, AFileInUseIsAnErrorThatMayPassAndSaysWhatToDoOtherwise) {
  Prepare();
  const auto store = Open(dir_.options());
  const absl::Status second = VariableStore::Open(dir_.options(), layout_, optimizer_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_TRUE(IsPassing(second));
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr(dir_.file()), HasSubstr("in use by another ps_server (process "),
                    HasSubstr("If this stays, stop that process"),
                    HasSubstr("give each job a --state_dir of its own")));
}

// A folder that cannot be accessed may hold state, so ignoring the error could lose steps.
TEST_F(StateFileTest, AFolderThatCannotBeAccessedIsAnError) {
  const std::string loop = dir_.path() + "/loop";
  std::filesystem::create_symlink("loop", loop);
  VariableStoreOptions options = dir_.options();
  options.state_dir = loop;
  const auto store = VariableStore::Open(options, layout_, optimizer_);
  EXPECT_TRUE(absl::IsUnavailable(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("cannot look at"));
}

TEST_F(StateFileTest, UsesAnonymousMemoryIfTheFolderCannotExist) {
  const std::string file = dir_.path() + "/file";
  std::ofstream(file) << "no folder";
  for (const std::string& folder : {file, file + "/below"}) {
    VariableStoreOptions options = dir_.options();
    options.state_dir = folder;
    const auto store = Open(options);
    FillVersion(store.get(), 0, 1, "");
    EXPECT_EQ(store->newest(), 0u) << folder;
  }
}

// Runs in a child process, so that the limit does not affect other tests.
TEST_F(StateFileTest, AFileThatCannotBeMappedIsAnErrorAndIsKept) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer ends a process that cannot map memory";
#endif
  Prepare();
  const std::string good = Read();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The limit is below the current size of the process, so every new mapping fails.
    const rlimit limit{1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    _exit(absl::IsUnavailable(VariableStore::Open(dir_.options(), layout_, optimizer_).status())
              ? 0
              : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Read().substr(kStatePageBytes), good.substr(kStatePageBytes));
  EXPECT_EQ(Open(dir_.options())->newest(), 2u);
}

// Copies the file in every phase of an apply, as if the process had died there. Every copy must
// hold only whole versions.
TEST_F(StateFileTest, AFileCopiedAtAnyPointHoldsOnlyWholeVersions) {
  const auto store = Open(dir_.options());
  ASSERT_TRUE(store->AdoptFile().ok());
  VariableStoreOptions copy = dir_.options();
  copy.name = "copy";
  const auto held_in_copy = [&]() {
    std::filesystem::copy_file(dir_.file(), dir_.path() + "/copy",
                               std::filesystem::copy_options::overwrite_existing);
    const auto reopened = Open(copy);
    EXPECT_EQ(reopened->fresh_reason(), "");
    std::string held;
    for (const HeldVersion& version : reopened->held()) {
      const auto pinned = reopened->Pin(version.version);
      EXPECT_TRUE(pinned.ok());
      EXPECT_EQ(DescribeContents(*reopened, *pinned), "");
      absl::StrAppend(&held, version.version, " ");
    }
    return held;
  };
  const int64_t elements = store->range().size();
  EXPECT_EQ(held_in_copy(), "");
  auto fill = store->BeginFill(7);
  ASSERT_TRUE(fill.ok());
  WriteContents(*store, 7, *fill, elements);
  EXPECT_EQ(held_in_copy(), "");
  ASSERT_TRUE(store->Commit(1, "").ok());
  EXPECT_EQ(held_in_copy(), "7 ");
  for (uint64_t version = 8; version < 12; ++version) {
    const auto buffers = store->BeginApply();
    ASSERT_TRUE(buffers.ok());
    const std::string before = absl::StrCat(version - 1, " ");
    for (const int64_t written : {int64_t{0}, int64_t{1}, elements / 2, elements}) {
      WriteContents(*store, version, buffers->to, written);
      EXPECT_EQ(held_in_copy(), before);
    }
    ASSERT_TRUE(store->Commit(1, "m").ok());
    EXPECT_EQ(held_in_copy(), absl::StrCat(before, version, " "));
  }
}

// Repeatedly starts a child that applies versions to the same file as fast as it can, and kills it
// at a random moment.
TEST_F(StateFileTest, SurvivesSigkillDuringAnApply) {
  { FillVersion(Open(dir_.options()).get(), 0, 1, ""); }
  CounterRandom random(3, 0);
  uint64_t last = 0;
  int advanced = 0;
  for (int round = 0; round < 25; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = VariableStore::Open(dir_.options(), layout_, optimizer_);
      if (!store.ok() || write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) {
        if (!ApplyVersion(store->get(), round, absl::StrCat((*store)->newest().value() + 1))) {
          _exit(2);
        }
      }
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    usleep(random.NextBelow(3000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    close(ready[0]);
    close(ready[1]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed: " << WEXITSTATUS(status);

    const auto store = Open(dir_.options());
    ASSERT_EQ(store->fresh_reason(), "");
    const std::vector<HeldVersion> held = store->held();
    ASSERT_FALSE(held.empty()) << round;
    for (const HeldVersion& version : held) {
      const auto pinned = store->Pin(version.version);
      ASSERT_TRUE(pinned.ok());
      ASSERT_EQ(DescribeContents(*store, *pinned), "");
      ASSERT_EQ(version.metadata, version.version == 0 ? "" : absl::StrCat(version.version));
    }
    ASSERT_GE(held.back().version, last) << "an applied version was lost";
    advanced += held.back().version > last ? 1 : 0;
    last = held.back().version;
  }
  EXPECT_GT(advanced, 0) << "no child ever applied anything";
}

// Runs in a child process, so that the limit does not affect other tests.
TEST_F(StateFileTest, UsesAnonymousMemoryAndLeavesNoFileWithoutDiskSpace) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{65536, 65536};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    auto store = VariableStore::Open(dir_.options(), layout_, optimizer_);
    if (!store.ok()) _exit(2);
    FillVersion(store->get(), 0, 1, "");
    if (!ApplyVersion(store->get(), 1, "") || (*store)->newest() != 1u) _exit(3);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(FilesIn(dir_.path()).empty());
}

}  // namespace
}  // namespace pushpull

#include "ps_server/store/variable_store.h"

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"
#include "ps_server/store/state_file.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/testkit/ordinary_user.h"
#include "tests/testkit/store/state_dir_test_util.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

std::vector<uint64_t> Versions(const VariableStore& store) {
  std::vector<uint64_t> versions;
  for (const HeldVersion& held : store.held()) versions.push_back(held.version);
  return versions;
}

class VariableStoreTest : public StateDirTest {
 protected:
  VariableStoreTest() : StateDirTest(MakeLayout(), MakeRmsProp()) {}

  using StateDirTest::Open;
  std::unique_ptr<VariableStore> Open() { return Open(dir_.options()); }
};

TEST_F(VariableStoreTest, StartsEmptyAndFillsAVersion) {
  const auto store = Open();
  EXPECT_EQ(store->fresh_reason(), "there was no state file");
  EXPECT_FALSE(store->newest().has_value());
  EXPECT_EQ(store->range(), (ElementRange{0, layout_.total_elements()}));
  EXPECT_EQ(GetErrorDetail(store->Pin(0).status()).kind(), ps::ErrorDetail::VERSION_GONE);
  EXPECT_TRUE(absl::IsFailedPrecondition(store->BeginApply().status()));

  FillVersion(store.get(), 41, 7, "marks");
  EXPECT_TRUE(std::filesystem::exists(dir_.file()));
  ASSERT_EQ(store->newest(), 41u);
  const auto pinned = store->Pin(*store->newest());
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(pinned->version, 41u);
  EXPECT_EQ(pinned->epoch, 7u);
  EXPECT_EQ(pinned->metadata, "marks");
  EXPECT_EQ(DescribeContents(*store, *pinned), "");
  const Payload payload = store->WeightsPayload(*pinned);
  EXPECT_EQ(payload.size_bytes, layout_.total_elements() * sizeof(float));
  EXPECT_EQ(payload.data, reinterpret_cast<const char*>(pinned->vectors.weights));
}

// A server that ends removes the folder that it has made, while another one starts there.
TEST_F(VariableStoreTest, AFolderThatVanishesMeanwhileIsMadeAgain) {
  VariableStoreOptions options = dir_.options();
  options.state_dir += "/mine";
  for (int round = 0; round < 1000; ++round) {
    std::filesystem::create_directory(options.state_dir);
    std::barrier start(2);
    std::thread ending([&] {
      start.arrive_and_wait();
      rmdir(options.state_dir.c_str());
    });
    start.arrive_and_wait();
    const auto store = Open(options);
    ending.join();
    ASSERT_TRUE(store->is_file()) << "round " << round;
  }
}

TEST_F(VariableStoreTest, VectorsAreAlignedAndDoNotOverlap) {
  const auto store = Open();
  const auto to = store->BeginFill(1);
  ASSERT_TRUE(to.ok());
  std::vector<const float*> vectors = {to->weights, to->slots[0], to->slots[1], to->ema};
  std::sort(vectors.begin(), vectors.end());
  for (size_t i = 0; i < vectors.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(vectors[i]) % 64, 0u);
    EXPECT_TRUE(i == 0 || vectors[i] - vectors[i - 1] >= layout_.total_elements()) << i;
  }
}

TEST_F(VariableStoreTest, AppliesAlternateBetweenBuffersAndKeepTwoVersions) {
  const auto store = Open();
  FillVersion(store.get(), 0, 1, "");
  for (uint64_t version = 1; version <= 5; ++version) {
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
    EXPECT_EQ(Versions(*store), (std::vector<uint64_t>{version - 1, version}));
    for (const uint64_t v : {version - 1, version}) {
      const auto pinned = store->Pin(v);
      ASSERT_TRUE(pinned.ok()) << pinned.status();
      EXPECT_EQ(DescribeContents(*store, *pinned), "");
    }
  }
  const absl::Status gone = store->Pin(3).status();
  EXPECT_EQ(GetErrorDetail(gone).kind(), ps::ErrorDetail::VERSION_GONE);
  EXPECT_EQ(GetErrorDetail(gone).step(), 5u);
  EXPECT_EQ(GetErrorDetail(store->Pin(6).status()).kind(), ps::ErrorDetail::VERSION_GONE);
}

TEST_F(VariableStoreTest, AVersionBeingWrittenIsNotVisible) {
  const auto store = Open();
  FillVersion(store.get(), 0, 1, "");
  ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  const auto buffers = store->BeginApply();
  ASSERT_TRUE(buffers.ok());
  EXPECT_EQ(buffers->version, 2u);
  EXPECT_EQ(Versions(*store), std::vector<uint64_t>{1});
  EXPECT_FALSE(store->Pin(2).ok());
  EXPECT_FALSE(store->Pin(0).ok()) << "the buffer of version 0 is being written";
  store->Abandon();
  EXPECT_EQ(Versions(*store), std::vector<uint64_t>{1});
  ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  EXPECT_EQ(Versions(*store), (std::vector<uint64_t>{1, 2}));
}

TEST_F(VariableStoreTest, APinKeepsItsBufferFromBeingWritten) {
  const auto store = Open();
  FillVersion(store.get(), 0, 1, "");
  ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  auto pinned = store->Pin(0);
  ASSERT_TRUE(pinned.ok());
  auto newest = store->Pin(*store->newest());
  Payload payload = store->WeightsPayload(*pinned);
  const absl::Status waited = store->WaitUntilWritable(absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited));
  EXPECT_THAT(std::string(waited.message()), HasSubstr("version 0 still has 1 readers"));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->BeginApply().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->BeginFill(9).status()));
  EXPECT_EQ(Versions(*store), (std::vector<uint64_t>{0, 1})) << "must be unchanged";

  std::thread reader(
      [owner = std::exchange(pinned->owner, nullptr), copy = payload.owner]() mutable {
        owner.reset();
        copy.reset();
      });
  reader.join();
  EXPECT_FALSE(store->WaitUntilWritable(absl::ZeroDuration()).ok())
      << "the payload must keep the pin alive";
  std::thread late([last = std::move(payload)]() mutable { last.owner.reset(); });
  EXPECT_TRUE(store->WaitUntilWritable(absl::InfiniteDuration()).ok());
  late.join();
  EXPECT_TRUE(ApplyVersion(store.get(), 1, "")) << "a pin of version 1 must not block version 2";
  newest->owner.reset();
}

TEST_F(VariableStoreTest, APinOutlivesTheStore) {
  auto store = Open();
  FillVersion(store.get(), 3, 1, "");
  const auto pinned = store->Pin(*store->newest());
  ASSERT_TRUE(pinned.ok());
  store.reset();
  EXPECT_EQ(pinned->vectors.weights[0], 3.0f);
}

TEST_F(VariableStoreTest, ReopeningFindsBothVersions) {
  {
    const auto store = Open();
    FillVersion(store.get(), 10, 4, "ten");
    ASSERT_TRUE(ApplyVersion(store.get(), 5, std::string("ele\0ven", 7)));
  }
  const auto store = Open();
  EXPECT_EQ(store->fresh_reason(), "");
  const std::vector<HeldVersion> held = store->held();
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].version, 10u);
  EXPECT_EQ(held[0].epoch, 4u);
  EXPECT_EQ(held[0].metadata, "ten");
  EXPECT_EQ(held[1].version, 11u);
  EXPECT_EQ(held[1].epoch, 5u);
  EXPECT_EQ(held[1].metadata, std::string("ele\0ven", 7));
  for (const HeldVersion& version : held) {
    const auto pinned = store->Pin(version.version);
    ASSERT_TRUE(pinned.ok());
    EXPECT_EQ(DescribeContents(*store, *pinned), "");
  }
}

TEST_F(VariableStoreTest, UseVersionGoesBackByOneAndDropsTheNewerVersion) {
  {
    const auto store = Open();
    FillVersion(store.get(), 10, 4, "");
    ASSERT_TRUE(ApplyVersion(store.get(), 4, ""));
  }
  {
    const auto store = Open();
    EXPECT_TRUE(absl::IsFailedPrecondition(store->UseVersion(12)));
    ASSERT_TRUE(store->UseVersion(10).ok());
    EXPECT_EQ(Versions(*store), std::vector<uint64_t>{10});
  }
  const auto store = Open();
  EXPECT_EQ(Versions(*store), std::vector<uint64_t>{10}) << "version 11 must not come back";
  ASSERT_TRUE(ApplyVersion(store.get(), 6, ""));
  ASSERT_TRUE(store->UseVersion(11).ok());
  EXPECT_EQ(Versions(*store), (std::vector<uint64_t>{10, 11}));
}

TEST_F(VariableStoreTest, AFillReplacesTheHeldVersions) {
  const auto store = Open();
  FillVersion(store.get(), 10, 4, "");
  ASSERT_TRUE(ApplyVersion(store.get(), 4, ""));
  ASSERT_TRUE(store->BeginFill(5).ok());
  EXPECT_EQ(Versions(*store), std::vector<uint64_t>{11}) << "until the fill is committed";
  store->Abandon();
  FillVersion(store.get(), 5, 9, "");
  EXPECT_EQ(Versions(*store), std::vector<uint64_t>{5});
}

TEST_F(VariableStoreTest, RefusesMetadataThatIsTooLarge) {
  const auto store = Open();
  FillVersion(store.get(), 0, 1, "");
  ASSERT_TRUE(store->BeginApply().ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store->Commit(1, std::string(1 << 20, 'x'))));
  EXPECT_EQ(store->newest(), 0u);
}

TEST_F(VariableStoreTest, ASecondOpenerIsRefusedAndNamesTheFirst) {
  const auto store = Open();
  const absl::Status status = VariableStore::Open(dir_.options(), layout_, optimizer_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(IsPassing(status)) << "the first may end: " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.file()));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(getpid())));
  FillVersion(store.get(), 0, 1, "");
  EXPECT_EQ(store->newest(), 0u);
}

TEST_F(VariableStoreTest, RemoveFileLeavesTheStoreWorking) {
  auto store = Open();
  FillVersion(store.get(), 0, 1, "");
  ASSERT_TRUE(store->RemoveFile().ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.file()));
  ASSERT_TRUE(store->RemoveFile().ok()) << "removing the file twice must succeed";
  EXPECT_TRUE(ApplyVersion(store.get(), 1, ""));
  const auto other = Open();
  EXPECT_FALSE(other->newest().has_value());
}

TEST_F(VariableStoreTest, UsesAnonymousMemoryWithoutAStateDir) {
  VariableStoreOptions options = dir_.options();
  options.state_dir = "";
  const auto store = Open(options);
  EXPECT_EQ(store->fresh_reason(), "variables are in anonymous memory");
  FillVersion(store.get(), 0, 1, "");
  EXPECT_TRUE(ApplyVersion(store.get(), 1, "x"));
  EXPECT_EQ(Versions(*store), (std::vector<uint64_t>{0, 1}));
}

TEST_F(VariableStoreTest, UsesAnonymousMemoryIfTheFileCannotBeCreated) {
  std::ofstream(dir_.path() + "/plain_file") << "x";
  VariableStoreOptions below_a_file = dir_.options();
  below_a_file.state_dir = dir_.path() + "/plain_file";
  const auto store = Open(below_a_file);
  FillVersion(store.get(), 0, 1, "");
  EXPECT_EQ(store->newest(), 0u);
  EXPECT_EQ(std::filesystem::file_size(dir_.path() + "/plain_file"), 1u) << "must be unchanged";
}

TEST_F(VariableStoreTest, RefusesAPathThatIsNotARegularFile) {
  std::ofstream(dir_.path() + "/plain_file") << "x";
  std::filesystem::create_symlink("plain_file", dir_.path() + "/link");
  std::filesystem::create_directory(dir_.path() + "/folder");
  for (const std::string name : {"link", "folder"}) {
    VariableStoreOptions options = dir_.options();
    options.name = name;
    const absl::Status status = VariableStore::Open(options, layout_, optimizer_).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_FALSE(IsPassing(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/" + name + " is not a regular file"));
  }
  EXPECT_EQ(std::filesystem::file_size(dir_.path() + "/plain_file"), 1u) << "must be unchanged";
}

TEST_F(VariableStoreTest, RefusesAFolderInWhichOtherUsersCanRenameFiles) {
  VariableStoreOptions options = dir_.options();
  options.state_dir = dir_.path() + "/open";
  std::filesystem::create_directory(options.state_dir);
  ASSERT_EQ(chmod(options.state_dir.c_str(), 0777), 0);
  const absl::Status status = VariableStore::Open(options, layout_, optimizer_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("mode 0777"));
  ASSERT_EQ(chmod(options.state_dir.c_str(), 01777), 0);
  FillVersion(Open(options).get(), 0, 1, "");
  EXPECT_TRUE(std::filesystem::exists(options.state_dir + "/state"))
      << "a sticky folder must be accepted";
  if (geteuid() != 0) GTEST_SKIP() << "only root can change the owner of a folder";
  ASSERT_EQ(chmod(options.state_dir.c_str(), 0700), 0);
  ASSERT_EQ(chown(options.state_dir.c_str(), 12345, 12345), 0);
  EXPECT_THAT(std::string(VariableStore::Open(options, layout_, optimizer_).status().message()),
              HasSubstr("belongs to user 12345"));
}

TEST_F(VariableStoreTest, DoesWithoutAFolderInWhichItMayNotWrite) {
  VariableStoreOptions options = dir_.options();
  options.state_dir = dir_.path() + "/closed";
  std::filesystem::create_directory(options.state_dir);
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(options.state_dir.c_str(), 0555), 0);
  const OrdinaryUser user;
  const WarningSink sink;
  EXPECT_FALSE(Open(options)->newest().has_value());
  EXPECT_EQ(sink.Count("cannot make " + options.state_dir + "/state.new: Permission denied"), 1);
  EXPECT_EQ(sink.Count("variables are in anonymous memory"), 1);
}

TEST_F(VariableStoreTest, RefusesAFolderWhoseFilesItMayNotSee) {
  VariableStoreOptions options = dir_.options();
  options.state_dir = dir_.path() + "/closed";
  std::filesystem::create_directory(options.state_dir);
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(options.state_dir.c_str(), 0000), 0);
  const OrdinaryUser user;
  const absl::Status status = VariableStore::Open(options, layout_, optimizer_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot open " + options.state_dir + "/state: Permission denied"));
}

TEST_F(VariableStoreTest, CreatesTheStateDir) {
  VariableStoreOptions options = dir_.options();
  options.state_dir = dir_.path() + "/a/b";
  FillVersion(Open(options).get(), 0, 1, "");
  EXPECT_TRUE(std::filesystem::exists(options.state_dir + "/state"));
  struct stat info;
  ASSERT_EQ(stat(options.state_dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u) << "other users must have no access";
}

}  // namespace
}  // namespace pushpull

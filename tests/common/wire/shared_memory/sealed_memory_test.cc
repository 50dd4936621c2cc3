#include "common/wire/shared_memory/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr size_t kBytes = 3 * 4096;
constexpr int64_t kNoSuchPid = (int64_t{1} << 22) + 1;  // above the largest pid of the kernel

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) { EXPECT_GE(fd, 0) << std::strerror(errno); }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

int MakeMemfd(const char* name, size_t size_bytes, int seals) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Expects FAILED_PRECONDITION with this reason.
void ExpectNotAttached(int64_t pid, int fd, const std::string& why) {
  const absl::Status status = SealedMemory::Attach(pid, fd, kBytes).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("/proc/", pid, "/fd/", fd)))
      << status;
}

TEST(SealedMemoryTest, BeginsZeroedWithAllPagesAllocated) {
  const auto memory = SealedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(std::all_of((*memory)->data(), (*memory)->data() + kBytes,
                          [](char byte) { return byte == 0; }));
  struct stat info;
  const auto untouched = SealedMemory::Create(kBytes);
  ASSERT_EQ(fstat((*untouched)->descriptor(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, static_cast<blkcnt_t>(kBytes));
}

TEST(SealedMemoryTest, BothSidesSeeTheSameBytes) {
  const auto server = SealedMemory::Create(kBytes);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto worker = SealedMemory::Attach(getpid(), (*server)->descriptor(), kBytes);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_NE((*server)->data(), (*worker)->data());
  (*server)->data()[0] = 'a';
  (*worker)->data()[kBytes - 1] = 'z';
  EXPECT_EQ((*worker)->data()[0], 'a');
  EXPECT_EQ((*server)->data()[kBytes - 1], 'z');
}

TEST(SealedMemoryTest, AnotherProcessSeesTheSameBytes) {
  const auto memory = SealedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  char* const data = (*memory)->data();
  std::strcpy(data, "from the parent");
  const pid_t parent = getpid();
  const int descriptor = (*memory)->descriptor();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Unmaps the inherited memory, so that the child can only see the bytes by attaching.
    munmap(data, kBytes);
    close(descriptor);
    const auto attached = SealedMemory::Attach(parent, descriptor, kBytes);
    if (!attached.ok()) _exit(1);
    if (std::strcmp((*attached)->data(), "from the parent") != 0) _exit(2);
    std::strcpy((*attached)->data(), "from the child");
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_STREQ(data, "from the child");
}

TEST(SealedMemoryTest, TheBytesOutliveTheirCreator) {
  auto server = SealedMemory::Create(kBytes);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto worker = SealedMemory::Attach(getpid(), (*server)->descriptor(), kBytes);
  ASSERT_TRUE(worker.ok()) << worker.status();
  (*server)->data()[7] = 'x';
  server->reset();
  EXPECT_EQ((*worker)->data()[7], 'x');
}

TEST(SealedMemoryTest, NeitherSideCanChangeItsSizeOrItsSeals) {
  const auto server = SealedMemory::Create(kBytes);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto worker = SealedMemory::Attach(getpid(), (*server)->descriptor(), kBytes);
  ASSERT_TRUE(worker.ok()) << worker.status();
  for (const int fd : {(*server)->descriptor(), (*worker)->descriptor()}) {
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(ftruncate(fd, 4096), 0);
    EXPECT_NE(ftruncate(fd, 2 * kBytes), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST(SealedMemoryTest, IsAccessibleToItsUserOnly) {
  const auto memory = SealedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  struct stat info;
  ASSERT_EQ(fstat((*memory)->descriptor(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  const auto attached = SealedMemory::Attach(getpid(), (*memory)->descriptor(), kBytes);
  ASSERT_TRUE(attached.ok()) << attached.status();
  for (const int fd : {(*memory)->descriptor(), (*attached)->descriptor()}) {
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0)
        << "started programs must not inherit the descriptor";
  }
}

TEST(SealedMemoryTest, ReleasesItsPagesAndItsDescriptor) {
  const auto num_mapped = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += absl::StrContains(line, "/memfd:pushpull") ? 1 : 0;
    }
    return count;
  };
  const int before = num_mapped();
  auto memory = SealedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(num_mapped(), before + 1);
  const int descriptor = (*memory)->descriptor();
  memory->reset();
  EXPECT_EQ(num_mapped(), before);
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
}

TEST(SealedMemoryTest, RefusesAnImpossibleSize) {
  const absl::Status status = SealedMemory::Create(~size_t{0}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "bytes of shared memory")) << status;
}

TEST(SealedMemoryTest, ReportsAMissingProcessOrDescriptor) {
  const auto memory = SealedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ExpectNotAttached(kNoSuchPid, (*memory)->descriptor(), "No such file");
  ExpectNotAttached(0, (*memory)->descriptor(), "No such file");
  ExpectNotAttached(-1, (*memory)->descriptor(), "No such file");
  ExpectNotAttached(getpid(), 1 << 20, "No such file");
  ExpectNotAttached(getpid(), -1, "No such file");
}

TEST(SealedMemoryTest, DoesNotOpenDescriptorsOfOtherKinds) {
  const std::string path = absl::StrCat(testing::TempDir(), "/pushpull_regular_", getpid());
  const Descriptor regular(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(regular.get(), kBytes), 0);
  ExpectNotAttached(getpid(), regular.get(), "it is something else");
  unlink(path.c_str());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor from(ends[0]);
  const Descriptor to(ends[1]);
  ExpectNotAttached(getpid(), from.get(), "it is something else");
  ExpectNotAttached(getpid(), to.get(), "it is something else");
  const Descriptor other(MakeMemfd("other", kBytes, kAllSeals));
  ExpectNotAttached(getpid(), other.get(), "it is something else");
}

TEST(SealedMemoryTest, ReportsAnotherSize) {
  const Descriptor small(MakeMemfd("pushpull", kBytes - 1, kAllSeals));
  ExpectNotAttached(getpid(), small.get(), "it has 12287 bytes, expected 12288");
  const Descriptor large(MakeMemfd("pushpull", kBytes + 1, kAllSeals));
  ExpectNotAttached(getpid(), large.get(), "it has 12289 bytes, expected 12288");
}

TEST(SealedMemoryTest, RequiresEverySeal) {
  for (const int seals :
       {0, F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_GROW}) {
    const Descriptor memory(MakeMemfd("pushpull", kBytes, seals));
    ExpectNotAttached(getpid(), memory.get(), "it is not sealed");
  }
  const Descriptor sealed(MakeMemfd("pushpull", kBytes, kAllSeals));
  EXPECT_TRUE(SealedMemory::Attach(getpid(), sealed.get(), kBytes).ok());
}

TEST(HostIdentityTest, IsTheSameForTheProcessesOfOneMachine) {
  const std::string here = HostIdentity();
  EXPECT_FALSE(here.empty());
  EXPECT_EQ(here, HostIdentity());
  EXPECT_TRUE(absl::StrContains(here, "pid:["))
      << here << ": the identity must hold the namespace of process ids";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(HostIdentity() == here ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pushpull

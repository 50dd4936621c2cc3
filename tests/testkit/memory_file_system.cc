#include "tests/testkit/memory_file_system.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/base/passing_error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace pushpull {

struct MemoryFileSystem::Node {
  using Entries = std::map<std::string, std::shared_ptr<Node>>;
  static int64_t NextNumber() {
    static std::atomic<int64_t> next = 0;
    return next.fetch_add(1);
  }

  const int64_t number = NextNumber();  // the identity of a folder, which no other node has
  bool is_directory = false;
  std::string contents;
  std::string durable_contents;
  // Value of State::corruptions when this file was corrupted. It serves as modification time.
  int64_t corruptions = 0;
  Entries entries;
  Entries durable_entries;
};

struct MemoryFileSystem::State {
  using NodePtr = std::shared_ptr<Node>;

  mutable absl::Mutex mutex;
  NodePtr root = std::make_shared<Node>();
  std::optional<FileFault> fault;
  int64_t calls = 0;
  bool crashed = false;
  int64_t corruptions = 0;  // number of calls of Corrupt
  bool refuse_exchange = false;
  std::function<void()> before_append;
  int64_t free_bytes = int64_t{1} << 40;
  int64_t generation = 0;  // number of reboots
  std::set<std::string> locks;

  // Counts a call. Returns its injected error if it is the call that has to fail.
  absl::Status Call(absl::string_view what) {
    const int64_t call = calls++;
    if (crashed) return absl::InternalError(absl::StrCat(what, ": the machine is down"));
    if (!fault.has_value() || call < fault->call || (call > fault->call && !fault->lasting)) {
      return absl::OkStatus();
    }
    switch (fault->kind) {
      case FileFault::Kind::kDiskFull:
      case FileFault::Kind::kShortWrite:
        return MarkPassing(
            absl::ResourceExhaustedError(absl::StrCat(what, ": no space left (injected)")));
      case FileFault::Kind::kIoError:
        return MarkPassing(
            absl::InternalError(absl::StrCat(what, ": input/output error (injected)")));
      case FileFault::Kind::kCrash:
        crashed = true;
        return absl::InternalError(absl::StrCat(what, ": crash (injected)"));
    }
    return absl::OkStatus();
  }

  NodePtr Find(const std::string& path) const {
    NodePtr node = root;
    for (const absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
      const auto it = node->entries.find(std::string(name));
      if (it == node->entries.end()) return nullptr;
      node = it->second;
    }
    return node;
  }

  // Returns the parent folder and the last component of the path.
  std::pair<NodePtr, std::string> Parent(const std::string& path) const {
    std::vector<std::string> names = absl::StrSplit(path, '/', absl::SkipEmpty());
    if (names.empty()) return {nullptr, ""};
    const std::string last = names.back();
    names.pop_back();
    NodePtr node = root;
    for (const std::string& name : names) {
      const auto it = node->entries.find(name);
      if (it == node->entries.end() || !it->second->is_directory) return {nullptr, last};
      node = it->second;
    }
    return {node, last};
  }
};

namespace {

using State = MemoryFileSystem::State;
using Node = MemoryFileSystem::Node;
using NodePtr = std::shared_ptr<Node>;

absl::Status Missing(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": no such file"));
}

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(std::shared_ptr<State> state, NodePtr node, std::string path)
      : state_(std::move(state)),
        node_(std::move(node)),
        path_(std::move(path)),
        generation_(state_->generation) {}

  absl::Status Append(absl::string_view data) override {
    std::function<void()> action;
    {
      absl::MutexLock lock(&state_->mutex);
      action = state_->before_append;
    }
    if (action) action();
    absl::MutexLock lock(&state_->mutex);
    PP_RETURN_IF_ERROR(CheckPower());
    const bool half =
        state_->fault.has_value() && state_->fault->kind == FileFault::Kind::kShortWrite;
    const absl::Status status = state_->Call(absl::StrCat("write ", path_));
    // A crash may happen after some bytes have reached the cache.
    if (!status.ok() && (half || state_->crashed)) data = data.substr(0, data.size() / 2);
    if (status.ok() || half || state_->crashed) node_->contents.append(data.data(), data.size());
    return status;
  }

  absl::Status Sync() override {
    absl::MutexLock lock(&state_->mutex);
    PP_RETURN_IF_ERROR(CheckPower());
    PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("fsync ", path_)));
    node_->durable_contents = node_->contents;
    return absl::OkStatus();
  }

  absl::Status Close() override {
    absl::MutexLock lock(&state_->mutex);
    PP_RETURN_IF_ERROR(CheckPower());
    return state_->Call(absl::StrCat("close ", path_));
  }

 private:
  absl::Status CheckPower() const {
    if (generation_ == state_->generation) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(path_, " was opened before the reboot"));
  }

  std::shared_ptr<State> state_;
  NodePtr node_;
  std::string path_;
  int64_t generation_;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(std::string contents, std::string path)
      : contents_(std::make_shared<std::string>(std::move(contents))), path_(std::move(path)) {}

  int64_t size_bytes() const override { return contents_->size(); }

  absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const override {
    if (offset > size_bytes() - size) {
      return absl::OutOfRangeError(absl::StrCat(path_, " ends at byte ", size_bytes(),
                                                ", expected at least ", offset + size, " bytes"));
    }
    if (size > 0) std::memcpy(destination, contents_->data() + offset, size);
    return absl::OkStatus();
  }

  absl::StatusOr<Payload> Map() const override {
    return Payload{contents_, contents_->data(), contents_->size()};
  }

 private:
  std::shared_ptr<const std::string> contents_;
  std::string path_;
};

class MemoryLock final : public FileLock {
 public:
  MemoryLock(std::shared_ptr<State> state, std::string path)
      : state_(std::move(state)), path_(std::move(path)), generation_(state_->generation) {}
  ~MemoryLock() override {
    absl::MutexLock lock(&state_->mutex);
    if (generation_ == state_->generation) state_->locks.erase(path_);
  }

 private:
  std::shared_ptr<State> state_;
  std::string path_;
  int64_t generation_;
};

// Returns the tree that the disk holds after a power cut.
NodePtr Surviving(const Node& node, Survival survival, CounterRandom* random) {
  const auto newer = [&] {
    return survival == Survival::kEverything ||
           (survival == Survival::kRandom && random->NextBelow(2) == 1);
  };
  auto result = std::make_shared<Node>();
  result->is_directory = node.is_directory;
  if (!node.is_directory) {
    result->contents = node.durable_contents;
    if (survival == Survival::kEverything) {
      result->contents = node.contents;
    } else if (survival == Survival::kRandom &&
               node.contents.size() > node.durable_contents.size()) {
      // A random prefix of the appended bytes survives.
      const size_t extra = node.contents.size() - node.durable_contents.size();
      result->contents =
          node.contents.substr(0, node.durable_contents.size() + random->NextBelow(extra + 1));
    }
    result->durable_contents = result->contents;
    return result;
  }
  std::set<std::string> names;
  for (const auto& [name, child] : node.entries) names.insert(name);
  for (const auto& [name, child] : node.durable_entries) names.insert(name);
  for (const std::string& name : names) {
    const Node::Entries& from = newer() ? node.entries : node.durable_entries;
    if (const auto it = from.find(name); it != from.end()) {
      result->entries[name] = Surviving(*it->second, survival, random);
    }
  }
  result->durable_entries = result->entries;
  return result;
}

}  // namespace

MemoryFileSystem::MemoryFileSystem() : state_(std::make_shared<State>()) {
  state_->root->is_directory = true;
}

void MemoryFileSystem::SetFault(std::optional<FileFault> fault) {
  absl::MutexLock lock(&state_->mutex);
  state_->fault = fault;
  state_->calls = 0;
}

int64_t MemoryFileSystem::calls() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->calls;
}

bool MemoryFileSystem::crashed() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->crashed;
}

void MemoryFileSystem::Reboot(Survival survival, uint64_t seed) {
  absl::MutexLock lock(&state_->mutex);
  CounterRandom random(seed, StableHash("reboot"));
  state_->root = Surviving(*state_->root, survival, &random);
  state_->fault.reset();
  state_->calls = 0;
  state_->crashed = false;
  state_->locks.clear();
  ++state_->generation;
}

void MemoryFileSystem::SetFreeBytes(int64_t bytes) {
  absl::MutexLock lock(&state_->mutex);
  state_->free_bytes = bytes;
}

absl::StatusOr<int64_t> MemoryFileSystem::FreeBytes(const std::string& folder) {
  absl::MutexLock lock(&state_->mutex);
  const NodePtr node = state_->Find(folder);
  if (node == nullptr) return Missing(folder);
  return state_->free_bytes;
}

void MemoryFileSystem::BeforeAppend(std::function<void()> action) {
  absl::MutexLock lock(&state_->mutex);
  state_->before_append = std::move(action);
}

void MemoryFileSystem::RefuseExchange() {
  absl::MutexLock lock(&state_->mutex);
  state_->refuse_exchange = true;
}

void MemoryFileSystem::Corrupt(const std::string& path, const std::string& contents) {
  absl::MutexLock lock(&state_->mutex);
  // A new node, because open files keep the old contents.
  auto node = std::make_shared<Node>();
  node->contents = contents;
  node->durable_contents = contents;
  node->corruptions = ++state_->corruptions;
  const auto [parent, name] = state_->Parent(path);
  parent->entries[name] = node;
  parent->durable_entries[name] = node;
}

absl::StatusOr<std::unique_ptr<WritableFile>> MemoryFileSystem::OpenForWrite(
    const std::string& path, WriteMode mode) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("create ", path)));
  const auto [parent, name] = state_->Parent(path);
  if (parent == nullptr) return Missing(path);
  NodePtr& node = parent->entries[name];
  if (node != nullptr && (mode == WriteMode::kCreateNew || node->is_directory)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  }
  if (node == nullptr) node = std::make_shared<Node>();
  node->contents.clear();
  return std::make_unique<MemoryWritableFile>(state_, node, path);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> MemoryFileSystem::OpenForRead(
    const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  const NodePtr node = state_->Find(path);
  if (node == nullptr) return Missing(path);
  if (node->is_directory) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  return std::make_unique<MemoryReadableFile>(node->contents, path);
}

absl::Status MemoryFileSystem::MakeDirectory(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("create folder ", path)));
  const auto [parent, name] = state_->Parent(path);
  if (parent == nullptr) return Missing(path);
  NodePtr& node = parent->entries[name];
  if (node != nullptr) return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  node = std::make_shared<Node>();
  node->is_directory = true;
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("fsync folder ", path)));
  const NodePtr node = state_->Find(path);
  if (node == nullptr || !node->is_directory) return Missing(path);
  node->durable_entries = node->entries;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemoryFileSystem::List(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  const NodePtr node = state_->Find(path);
  if (node == nullptr || !node->is_directory) return Missing(path);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

absl::StatusOr<std::string> MemoryFileSystem::FolderIdentity(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  const NodePtr node = state_->Find(path);
  if (node == nullptr) return Missing(path);
  return absl::StrCat("node ", node->number);
}

absl::StatusOr<FileInfo> MemoryFileSystem::GetInfo(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  const NodePtr node = state_->Find(path);
  if (node == nullptr) return Missing(path);
  return FileInfo{node->is_directory, static_cast<int64_t>(node->contents.size()),
                  node->corruptions};
}

absl::Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("rename ", from, " to ", to)));
  const NodePtr node = state_->Find(from);
  const auto [target, target_name] = state_->Parent(to);
  if (node == nullptr || target == nullptr) return Missing(from);
  const NodePtr existing = state_->Find(to);
  if (existing != nullptr && (existing->is_directory || node->is_directory)) {
    return absl::AlreadyExistsError(absl::StrCat(to, " exists"));
  }
  const auto [source, source_name] = state_->Parent(from);
  source->entries.erase(source_name);
  target->entries[target_name] = node;
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::Exchange(const std::string& a, const std::string& b) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("exchange ", a, " with ", b)));
  if (state_->refuse_exchange) return absl::UnimplementedError("exchange is not supported");
  const auto [parent_a, name_a] = state_->Parent(a);
  const auto [parent_b, name_b] = state_->Parent(b);
  if (state_->Find(a) == nullptr || state_->Find(b) == nullptr) return Missing(a);
  std::swap(parent_a->entries[name_a], parent_b->entries[name_b]);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::RemoveFile(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("remove ", path)));
  const NodePtr node = state_->Find(path);
  if (node == nullptr) return Missing(path);
  const auto [parent, name] = state_->Parent(path);
  parent->entries.erase(name);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::RemoveDirectory(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("remove folder ", path)));
  const NodePtr node = state_->Find(path);
  if (node == nullptr) return Missing(path);
  if (!node->entries.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is not empty"));
  }
  const auto [parent, name] = state_->Parent(path);
  parent->entries.erase(name);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> MemoryFileSystem::Lock(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  PP_RETURN_IF_ERROR(state_->Call(absl::StrCat("lock ", path)));
  const auto [parent, name] = state_->Parent(path);
  if (parent == nullptr) return Missing(path);
  if (!state_->locks.insert(path).second) {
    return absl::UnavailableError(absl::StrCat(path, " is locked by another process"));
  }
  NodePtr& node = parent->entries[name];
  if (node == nullptr) node = std::make_shared<Node>();
  return std::make_unique<MemoryLock>(state_, path);
}

}  // namespace pushpull

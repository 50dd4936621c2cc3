// The memory of a shard's state: a mapped and locked file, or anonymous memory. Knows bytes, not
// versions.
//
// A file that an earlier process left is used as it is or not touched at all. Where it does not
// fit, or where there is none, the state goes to a second file, <name>.new, and AdoptFile gives
// that its name once it holds something worth keeping; a file that stood there is renamed aside,
// never shortened or removed.
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_MAPPING_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_MAPPING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ps_server/store/state_file.h"

namespace pushpull {

// Thread-compatible. The file stays locked and mapped until destruction.
class StateMapping {
 public:
  // Maps state_dir/name when its header is the expected one; else a new file, with no version held.
  // Uses anonymous memory without a state_dir, and where the folder or a new file cannot be made;
  // the log says why. FAILED_PRECONDITION: another process has the file open, or file or folder
  // belong to another user. UNAVAILABLE: there is a folder or a file, and it could not be opened or
  // mapped; it is untouched, and the state in it may be the only copy, so nothing else is used in
  // its place. RESOURCE_EXHAUSTED: no memory.
  static absl::StatusOr<std::unique_ptr<StateMapping>> Open(const std::string& state_dir,
                                                            const std::string& name,
                                                            const StateHeader& header);
  ~StateMapping();
  StateMapping(const StateMapping&) = delete;
  StateMapping& operator=(const StateMapping&) = delete;

  char* data() const { return data_; }
  StateControl* control() const {
    return reinterpret_cast<StateControl*>(data_ + kStateControlOffset);
  }
  bool is_file() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }
  // Why nothing earlier was taken over; empty when it was.
  const std::string& fresh_reason() const { return fresh_reason_; }

  // Leaves the pages at `readers` (a piece of the state that begins `offset` bytes into it, page
  // aligned) to those who read there: they keep address and contents, in private memory, while the
  // state goes on at the address returned, which lives as long as this object. The same size each
  // time.
  absl::StatusOr<char*> Detach(char* readers, int64_t offset, int64_t size_bytes);
  // Gives the memory of a detached piece back; nobody reads there any more. A later Detach uses its
  // addresses again.
  void Discard(char* readers, int64_t size_bytes);

  // Gives a new file its name; a file that had the name gets another one beside it, which the log
  // tells. Does nothing for a file that was taken over, and without one. After an error the new
  // file's contents are safe in <name>.new, but are not found by the next process.
  absl::Status AdoptFile();

  // Unlinks the file; the mapping stays. A file that was set aside stays too.
  absl::Status RemoveFile();

 private:
  StateMapping(std::string path, int64_t size_bytes) : path_(std::move(path)), size_(size_bytes) {}

  // The state of an earlier process, if there is a file that fits; fd_ < 0 afterwards: there is
  // none, and fresh_reason_ says why.
  absl::Status TakeOverFile(const StateHeader& header);
  // fd_ >= 0 afterwards: <name>.new is mapped and empty.
  absl::Status MakeFile(const StateHeader& header);
  absl::Status MapFile(int fd, const std::string& path);
  absl::Status MapAnonymous(const StateHeader& header);
  std::string NewPath() const { return path_ + ".new"; }
  // Private zeroed memory, released with this object; null: there is none.
  char* TakePiece(int64_t size_bytes);

  const std::string path_;
  const int64_t size_;
  int fd_ = -1;          // of the file that is mapped
  int other_fd_ = -1;    // of a file under the name that does not fit: keeps it locked
  bool is_new_ = false;  // the file mapped is NewPath() so far
  char* data_ = nullptr;
  std::vector<std::pair<char*, int64_t>> pieces_;  // mapped by TakePiece
  std::vector<char*> discarded_;                   // pieces of no use until the next Detach
  std::string fresh_reason_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_MAPPING_H_

// Remembers on disk which implementation of each operator was the fastest on a GPU, so that it is
// measured once per machine and later runs make the same choices, and thus compute the same bits.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_CHOICE_FILE_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_CHOICE_FILE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "common/base/file_system.h"

namespace pushpull {

// The choices for one kind of GPU with certain versions of driver, libraries and kernels. The file
// holds those of several. It is text: a line per choice with the conditions, the operator and the
// choice, separated by tabs. Thread-compatible; several processes may use the file at a time.
class ChoiceFile {
 public:
  // `path` empty: nothing is kept. `conditions` is a single line without tabs. A file that cannot
  // be read, or has lines that are no choices, only costs measurements: it is logged and replaced.
  // `files` must outlive the object.
  ChoiceFile(FileSystem* files, std::string path, std::string conditions);

  // The choice for an operator, or nullopt.
  std::optional<std::string> Find(const std::string& key) const;

  // As Find, but reads the file again, because another process may have added the choice.
  std::optional<std::string> FindAgain(const std::string& key);

  // Adds a choice and returns the one that holds: another process may have been first, and then its
  // choice is returned. `key` and `choice` have no tabs and no line ends. Waits up to two seconds
  // for other processes. If the file cannot be written, or there is none, that is logged once, and
  // the choice holds for this process.
  std::string Add(const std::string& key, const std::string& choice);

 private:
  using Lines = std::map<std::string, std::string>;  // by conditions, tab, operator
  Lines Read() const;
  // Adds a line, or sets *choice to that of the file.
  absl::Status AddToFile(const std::string& name, std::string* choice);

  FileSystem& files_;
  const std::string path_;
  const std::string conditions_;
  Lines lines_;
  bool warned_ = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_CHOICE_FILE_H_

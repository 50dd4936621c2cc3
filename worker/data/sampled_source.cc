#include "worker/data/sampled_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "worker/data/check_examples.h"

namespace pushpull {

SampledSource::SampledSource(std::unique_ptr<ImageSource> source, int64_t n)
    : source_(std::move(source)), n_(n) {
  CHECK_GE(n_, 1);
}

int64_t SampledSource::size() const { return (source_->size() - 1) / n_ + 1; }

std::string SampledSource::describe() const {
  return absl::StrCat("1 of ", n_, " examples (", size(), ") of ", source_->describe());
}

std::string SampledSource::identity() const {
  return absl::StrCat(describe(), "\n", source_->identity());
}

absl::Status SampledSource::Get(int64_t index, Example* example) const {
  CHECK(index >= 0 && index < size()) << index;
  return source_->Get(index * n_, example);
}

absl::Status SampledSource::GetEncoded(int64_t index, Example* example) const {
  CHECK(index >= 0 && index < size()) << index;
  return source_->GetEncoded(index * n_, example);
}

absl::Status SampledSource::Check(ThreadPool* pool, StoppedFn stopped) const {
  return CheckExamples(*this, describe(), pool, stopped,
                       [this](int64_t i, Example* example) { return Get(i, example); });
}

}  // namespace pushpull

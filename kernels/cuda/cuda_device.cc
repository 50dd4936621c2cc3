// Tested by tests/kernels/cuda/emulation/cuda_device_test.cc.
#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_operators.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/vendor/open_libraries.h"
#include "kernels/device_selection.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

std::string ErrorText(cudaError_t error) {
  return absl::StrCat(cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Returns for example "512 bytes", "1.50 MiB" or "139.80 GiB".
std::string SizeText(int64_t bytes) {
  if (bytes < kMiB) return absl::StrCat(bytes, " bytes");
  if (bytes < kGiB) return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / kMiB);
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / kGiB);
}

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(void* data, int64_t bytes, int64_t* used) : Memory(data, bytes), used_(used) {}
  ~DeviceMemory() override {
    cudaFree(data());
    *used_ -= bytes();
  }

 private:
  int64_t* const used_;
};

class PinnedMemory final : public Memory {
 public:
  PinnedMemory(void* data, int64_t bytes) : Memory(data, bytes) {}
  ~PinnedMemory() override { cudaFreeHost(data()); }
};

struct CudaEvent final : DeviceEvent {
  ~CudaEvent() override {
    if (event != nullptr) cudaEventDestroy(event);
  }
  cudaEvent_t event = nullptr;
};

struct CudaGraph final : DeviceGraph {
  ~CudaGraph() override {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
  }
  cudaGraphExec_t executable = nullptr;
};

class CudaDevice final : public Device {
 public:
  // `libraries` is null if our kernels compute everything.
  CudaDevice(std::string description, std::string model, std::string uuid,
             int64_t memory_limit_bytes, std::unique_ptr<ChoiceContext> libraries)
      : description_(std::move(description)),
        model_(std::move(model)),
        uuid_(std::move(uuid)),
        memory_limit_bytes_(memory_limit_bytes),
        libraries_(std::move(libraries)),
        float_operators_(MakeCudaOperators<float>(&queue_, libraries_.get())),
        bfloat16_operators_(MakeCudaOperators<Bfloat16>(&queue_, libraries_.get())) {
    if (libraries_ == nullptr) return;
    // Trials keep to the process's limit, too.
    libraries_->allocate = [this](int64_t bytes) { return Allocate(bytes); };
  }

  ~CudaDevice() override {
    queue_.FreeShared();
    if (queue_.stream != nullptr) cudaStreamDestroy(queue_.stream);
    if (copies_ != nullptr) cudaStreamDestroy(copies_);
    if (uploads_ != nullptr) cudaStreamDestroy(uploads_);
    if (zeroed_ != nullptr) cudaEventDestroy(zeroed_);
  }

  absl::Status Start(int index, const cudaDeviceProp& properties) {
    queue_.device = index;
    queue_.multiprocessors = properties.multiProcessorCount;
    queue_.shared_bytes_limit = static_cast<int>(properties.sharedMemPerBlockOptin);
    queue_.Note(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "stream");
    queue_.Note(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "stream");
    queue_.Note(cudaStreamCreateWithFlags(&uploads_, cudaStreamNonBlocking), "stream");
    queue_.Note(cudaEventCreateWithFlags(&zeroed_, cudaEventDisableTiming), "event");
    queue_.AllocateShared();
    return status();
  }

  std::string description() const override { return description_; }
  std::string model() const override { return model_; }
  std::string uuid() const override { return uuid_; }
  bool uses_libraries() const override { return libraries_ != nullptr; }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    if (!queue_.Enter()) return status();
    const int64_t wanted = std::max<int64_t>(bytes, 1);
    if (memory_limit_bytes_ > 0 && used_bytes_ + wanted > memory_limit_bytes_) {
      return OutOfMemory(wanted, memory_limit_bytes_ - used_bytes_, " of this process's limit of ",
                         memory_limit_bytes_);
    }
    void* data = nullptr;
    const cudaError_t result = cudaMalloc(&data, wanted);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, which the next launch would report as its own
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      return OutOfMemory(wanted, static_cast<int64_t>(free), " of ", static_cast<int64_t>(total));
    }
    queue_.Note(result, "memory allocation");
    PP_RETURN_IF_ERROR(status());
    queue_.Note(cudaMemsetAsync(data, 0, wanted, queue_.stream), "memset");
    // The upload queue must not write to the memory before the zeros are there.
    queue_.Note(cudaEventRecord(zeroed_, queue_.stream), "event");
    queue_.Note(cudaStreamWaitEvent(uploads_, zeroed_, 0), "event");
    used_bytes_ += wanted;
    return std::make_unique<DeviceMemory>(data, wanted, &used_bytes_);
  }

  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    if (!ReadMemory(&free, &total)) return 0;
    return WithinLimit(static_cast<int64_t>(free));
  }

  int64_t free_bytes_without_others() const override {
    size_t free = 0, total = 0;
    if (!ReadMemory(&free, &total)) return 0;
    return WithinLimit(static_cast<int64_t>(total - total / 16) - used_bytes_);
  }

  absl::StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) override {
    if (!queue_.Enter()) return status();
    void* data = nullptr;
    const int64_t wanted = std::max<int64_t>(bytes, 1);
    const cudaError_t result = cudaHostAlloc(&data, wanted, cudaHostAllocDefault);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return absl::ResourceExhaustedError(absl::StrCat(
          description_, ": no page-locked host memory for ", wanted,
          " bytes; raise the limit of locked memory (ulimit -l) or lower train_config.batch_size"));
    }
    queue_.Note(result, "page-locked allocation");
    PP_RETURN_IF_ERROR(status());
    std::memset(data, 0, wanted);
    return std::make_unique<PinnedMemory>(data, wanted);
  }

  void Write(void* to, const void* from, int64_t bytes) override {
    if (!queue_.Enter()) return;
    // If `from` is not page-locked, CUDA has copied its bytes when the first call returns. If it
    // is, only the second call waits for that.
    queue_.Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue_.stream), "write");
    queue_.Note(cudaStreamSynchronize(queue_.stream), "write");
  }

  Operators<float>* float_operators() override { return float_operators_.get(); }
  Operators<Bfloat16>* bfloat16_operators() override { return bfloat16_operators_.get(); }

  void CopyToDevice(void* to, const void* from, int64_t bytes) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue_.stream), "upload");
  }

  void Upload(void* to, const void* from, int64_t bytes, DeviceEvent* after) override {
    if (!queue_.Enter()) return;
    if (after != nullptr) queue_.Note(cudaStreamWaitEvent(uploads_, EventOf(after), 0), "upload");
    queue_.Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, uploads_), "upload");
  }

  void CopyToHost(void* to, const void* from, int64_t bytes, DeviceEvent* after) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaStreamWaitEvent(copies_, EventOf(after), 0), "download");
    queue_.Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, copies_), "download");
  }

  std::unique_ptr<DeviceEvent> MakeEvent() override {
    auto event = std::make_unique<CudaEvent>();
    if (!queue_.Enter()) return event;
    queue_.Note(cudaEventCreateWithFlags(&event->event, cudaEventBlockingSync), "event");
    return event;
  }
  void RecordCompute(DeviceEvent* event) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaEventRecord(EventOf(event), queue_.stream), "event");
  }
  void RecordCopy(DeviceEvent* event) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaEventRecord(EventOf(event), copies_), "event");
  }
  void RecordUpload(DeviceEvent* event) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaEventRecord(EventOf(event), uploads_), "event");
  }
  void ComputeAfter(DeviceEvent* event) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaStreamWaitEvent(queue_.stream, EventOf(event), 0), "event");
  }
  absl::Status Wait(DeviceEvent* event) override {
    if (queue_.Enter()) {
      queue_.Note(cudaEventSynchronize(EventOf(event)), "queued work");
    }
    return status();
  }
  absl::StatusOr<double> MillisecondsBetween(DeviceEvent* first, DeviceEvent* second) override {
    float milliseconds = 0.0f;
    if (queue_.Enter()) {
      queue_.Note(cudaEventElapsedTime(&milliseconds, EventOf(first), EventOf(second)), "timing");
    }
    PP_RETURN_IF_ERROR(status());
    return milliseconds;
  }

  std::unique_ptr<DeviceGraph> Record(absl::FunctionRef<void()> work) override {
    auto graph = std::make_unique<CudaGraph>();
    if (!queue_.Enter()) return graph;
    queue_.Note(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal), "capture");
    queue_.recording = true;
    work();
    queue_.recording = false;
    cudaGraph_t captured = nullptr;
    queue_.Note(cudaStreamEndCapture(queue_.stream, &captured), "capture");
    if (queue_.error == cudaSuccess) {
      queue_.Note(cudaGraphInstantiate(&graph->executable, captured, 0), "graph");
    }
    if (captured != nullptr) cudaGraphDestroy(captured);
    return graph;
  }

  void Launch(DeviceGraph* graph) override {
    if (!queue_.Enter()) return;
    queue_.Note(cudaGraphLaunch(static_cast<CudaGraph*>(graph)->executable, queue_.stream),
                "graph");
  }

  absl::Status status() const override {
    if (queue_.error == cudaSuccess) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat(description_, ": ", queue_.failed_call,
                                           " failed: ", ErrorText(queue_.error),
                                           "; this process cannot use the GPU any more"));
  }

 private:
  bool ReadMemory(size_t* free, size_t* total) const {
    return cudaSetDevice(queue_.device) == cudaSuccess &&
           cudaMemGetInfo(free, total) == cudaSuccess;
  }
  // What this process may still allocate if `bytes` are free.
  int64_t WithinLimit(int64_t bytes) const {
    if (memory_limit_bytes_ == 0) return bytes;
    return std::min(bytes, std::max<int64_t>(memory_limit_bytes_ - used_bytes_, 0));
  }

  static cudaEvent_t EventOf(DeviceEvent* event) { return static_cast<CudaEvent*>(event)->event; }

  absl::Status OutOfMemory(int64_t wanted, int64_t free, absl::string_view of,
                           int64_t total) const {
    return absl::ResourceExhaustedError(absl::StrCat(description_, " has no memory for ",
                                                     SizeText(wanted), ": ", SizeText(free), of,
                                                     SizeText(total), " are free"));
  }

  const std::string description_;
  const std::string model_;
  const std::string uuid_;
  const int64_t memory_limit_bytes_;
  int64_t used_bytes_ = 0;
  Queue queue_;
  cudaStream_t copies_ = nullptr;
  cudaStream_t uploads_ = nullptr;
  cudaEvent_t zeroed_ = nullptr;  // after the zeros of the last allocation
  const std::unique_ptr<ChoiceContext> libraries_;
  const std::unique_ptr<Operators<float>> float_operators_;
  const std::unique_ptr<Operators<Bfloat16>> bfloat16_operators_;
};

struct DeviceAnswer {
  cudaDeviceProp properties = {};
  cudaError_t error = cudaSuccess;  // otherwise there are no properties
};

absl::StatusOr<std::vector<DeviceAnswer>> AskDevices() {
  PP_ASSIGN_OR_RETURN(const int count, CountDevices());
  std::vector<DeviceAnswer> answers(count);
  for (int i = 0; i < count; ++i) {
    answers[i].error = cudaGetDeviceProperties(&answers[i].properties, i);
    if (answers[i].error != cudaSuccess) cudaGetLastError();  // clears it: another may be chosen
  }
  return answers;
}

ListedDevice ListedOf(const DeviceAnswer& answer) {
  if (answer.error != cudaSuccess) return {"no answer", "UUID unknown"};
  const cudaDeviceProp& device = answer.properties;
  return {device.name, FormatUuid(reinterpret_cast<const unsigned char*>(device.uuid.bytes))};
}

absl::Status DoesNotAnswer(int index, cudaError_t error) {
  return absl::AbortedError(absl::StrCat("GPU ", index, " does not answer: ", ErrorText(error)));
}

// The index of the device that `gpu` names. NOT_FOUND: there is none. ABORTED: it does not answer.
absl::StatusOr<int> FindDevice(const std::vector<DeviceAnswer>& answers, const std::string& gpu) {
  std::vector<ListedDevice> listed;
  for (const DeviceAnswer& answer : answers) listed.push_back(ListedOf(answer));
  const absl::StatusOr<int> found = SelectDevice(listed, gpu);
  if (found.ok()) {
    const cudaError_t error = answers[*found].error;
    if (error != cudaSuccess) return DoesNotAnswer(*found, error);
    return *found;
  }
  int number = 0;
  if (absl::SimpleAtoi(gpu, &number)) return found.status();
  // The UUID may be that of a device which does not tell its own.
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].error == cudaSuccess) continue;
    return absl::AbortedError(
        absl::StrCat(DoesNotAnswer(static_cast<int>(i), answers[i].error).message(), "; ",
                     found.status().message()));
  }
  return found.status();
}

}  // namespace

absl::StatusOr<int> CountDevices() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  // If there is no driver at all, CUDA reports one that is too old, with version 0.
  if (result == cudaErrorNoDevice || driver == 0) return 0;
  if (result == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver is too old: it supports CUDA ", VersionText(driver),
        ", this program needs ", VersionText(runtime), "; update the driver or use --device=cpu"));
  }
  if (result == cudaErrorSystemNotReady) {
    return absl::AbortedError(absl::StrCat(
        "CUDA is not ready yet: ", ErrorText(result),
        "; a machine with NVSwitch needs nvidia-fabricmanager of the driver's version (systemctl "
        "status nvidia-fabricmanager); try again when it runs, or use --device=cpu"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("CUDA does not start: ", ErrorText(result), "; use --device=cpu without a GPU"));
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const GpuOptions& options) {
  PP_ASSIGN_OR_RETURN(const std::vector<DeviceAnswer> answers, AskDevices());
  PP_ASSIGN_OR_RETURN(const int index, FindDevice(answers, options.gpu));
  const cudaDeviceProp& chosen = answers[index].properties;
  const std::string description =
      absl::StrCat("GPU ", index, " (", chosen.name, ", ",
                   SizeText(static_cast<int64_t>(chosen.totalGlobalMem)), ")");
  // A waiting thread shall sleep, not spin: the input pipeline needs the cores.
  cudaError_t result = cudaSetDevice(index);
  if (result == cudaSuccess) result = cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
  if (result != cudaSuccess) {
    return absl::AbortedError(absl::StrCat(description, " cannot be used: ", ErrorText(result)));
  }
  if (const cudaError_t error = CodeForDevice(); error != cudaSuccess) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has compute capability %d.%d, for which this program has no code that runs: %s; build "
        "it with -DPUSHPULL_CUDA_ARCHITECTURES=%d%d or all (CUDA 13 supports 7.5 and later)",
        description, chosen.major, chosen.minor, ErrorText(error), chosen.major, chosen.minor));
  }
  std::unique_ptr<ChoiceContext> libraries;
  if (options.library != GpuLibrary::kOwn) {
    PP_ASSIGN_OR_RETURN(libraries, OpenLibraries(options, chosen.name));
  }
  auto device =
      std::make_unique<CudaDevice>(description, chosen.name, ListedOf(answers[index]).uuid,
                                   options.memory_limit_bytes, std::move(libraries));
  PP_RETURN_IF_ERROR(device->Start(index, chosen));
  return device;
}

}  // namespace pushpull::PUSHPULL_CUDA

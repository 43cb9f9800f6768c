// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/gpu.h"

#include <rondo/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/text.h"
#include "tools/shared/agree.h"
#include "tools/shared/lists.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr int most_gpus = 1024;
constexpr std::size_t most_copy_bytes = std::size_t{256} << 20,
                      host_copy_bytes = std::size_t{32} << 20;
constexpr std::uint64_t share_of_copies = 64;

std::string numbers_of(const std::vector<GpuInfo>& gpus) {
  std::vector<std::string> numbers;
  numbers.reserve(gpus.size());
  for (const GpuInfo& gpu : gpus) numbers.push_back(std::to_string(gpu.device));
  return join(numbers);
}

void check_needs(const DeviceChoice& choice, const std::vector<GpuInfo>& gpus,
                 const GpuNeeds& needs) {
  for (std::size_t i = 0; i < gpus.size() && i < static_cast<std::size_t>(needs.ranks); ++i) {
    const GpuInfo& gpu = gpus[i];
    const std::uint64_t ranks =
        (static_cast<std::uint64_t>(needs.ranks) - i + gpus.size() - 1) / gpus.size();
    if (ranks > 1 && !gpu.why_exclusive.empty())
      throw UsageError(fmt::format("--device {}: {} ranks would share GPU {}, but {}", choice.text,
                                   ranks, gpu.device, gpu.why_exclusive));
    if (gpu.memory_bytes == 0 || needs.bytes_of_rank <= gpu.memory_bytes / ranks) continue;
    throw UsageError(fmt::format(
        "--device {}: {} {} of GPU {} need {} each for their buffers, and it has {}; give a "
        "smaller --maxbytes, or fewer ranks",
        choice.text, ranks, ranks == 1 ? "rank" : "ranks", gpu.device,
        base::describe_bytes(needs.bytes_of_rank), base::describe_bytes(gpu.memory_bytes)));
  }
}

}  // namespace

DeviceChoice DeviceChoice::parse(const std::string& text, Operation operation) {
  DeviceChoice choice{false, {}, text};
  if (text.empty() || text == "cpu") return choice;
  const std::vector<std::string> parts = split(text, ':');
  if (parts.empty() || parts.front() != "cuda" || parts.size() > 2 || text.back() == ':')
    throw UsageError(fmt::format(
        "--device {}: unknown; possible: cpu, cuda (all GPUs), cuda:0,1 (these GPUs)", text));
  if (operation == Collective::barrier)
    throw UsageError(
        fmt::format("--device {}: a barrier has no buffers; leave the flag out", text));
  choice.on_gpus = true;
  if (parts.size() < 2) return choice;
  for (const std::string& number : split(parts[1], ',')) {
    const int gpu = parse_int("--device cuda:", number, 0, most_gpus - 1);
    if (!add_once(choice.gpus, gpu))
      throw UsageError(fmt::format("--device {}: names GPU {} twice", text, gpu));
  }
  return choice;
}

std::vector<GpuInfo> choose_gpus(const DeviceChoice& choice, const GpuNeeds& needs) {
  const GpuReport report = gather_gpus();
  if (!report.why.empty())
    throw UsageError(
        fmt::format("--device {}: {}; or leave --device out: then the buffers are in "
                    "host memory",
                    choice.text, report.why));
  std::vector<GpuInfo> chosen;
  if (choice.gpus.empty()) chosen = report.gpus;
  for (const int number : choice.gpus) {
    const auto found = std::ranges::find(report.gpus, number, &GpuInfo::device);
    if (found == report.gpus.end())
      throw UsageError(fmt::format(
          "--device {}: there is no GPU {}; this process sees {}: {} (rondo info shows them, "
          "CUDA_VISIBLE_DEVICES limits them)",
          choice.text, number, report.gpus.size() == 1 ? "one" : "these", numbers_of(report.gpus)));
    chosen.push_back(*found);
  }
  check_needs(choice, chosen, needs);
  return chosen;
}

std::size_t BenchGpu::copy_bytes() const {
  return std::clamp<std::size_t>(info.memory_bytes / share_of_copies, 4096, most_copy_bytes);
}

BenchGpu open_gpu(Communicator& communicator, const DeviceChoice& choice,
                  std::uint64_t bytes_of_rank, bool measure) {
  const auto local = communicator.local_ranks();
  const auto place =
      static_cast<std::size_t>(std::ranges::find(local, communicator.rank()) - local.begin());
  enum Outcome { fine, wrong_flags, failed };
  Outcome outcome = fine;
  std::string trouble;
  BenchGpu gpu;
  try {
    const std::vector<GpuInfo> gpus =
        choose_gpus(choice, {static_cast<int>(local.size()), bytes_of_rank});
    gpu.info = gpus[place % gpus.size()];
    gpu.measures = place < gpus.size();
    gpu.stream = std::make_unique<GpuStream>(gpu.info.device);
    if (measure && communicator.rank() == 0) {
      gpu.to_host = gpu.stream->measure(GpuCopy::to_host, host_copy_bytes) / 1e9;
      gpu.to_gpu = gpu.stream->measure(GpuCopy::to_gpu, host_copy_bytes) / 1e9;
    }
  } catch (const UsageError& error) {
    outcome = wrong_flags;
    trouble = error.what();
  } catch (const std::exception& error) {
    outcome = failed;
    trouble = fmt::format("--device {}: {}", choice.text, error.what());
  }
  const int worst = static_cast<int>(maximum_over_ranks(communicator, outcome));
  if (worst == fine) return gpu;
  if (outcome == fine) trouble = "another rank cannot use its GPU: see its message";
  // UsageError is printed by rank 0 alone.
  if (worst == wrong_flags && communicator.rank() != 0 && outcome != fine)
    say("rondo bench: rank {}: {}\n", communicator.rank(), trouble);
  if (worst == wrong_flags) throw UsageError(trouble);
  throw std::runtime_error(trouble);
}

}  // namespace rondo::tools

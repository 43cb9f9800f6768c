// SPDX-License-Identifier: Apache-2.0
#include "python/torch/backend.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include "python/torch/arguments.h"
#include "python/torch/monitored_barrier.h"
#include "python/torch/several_works.h"

namespace rondo::python {

namespace {

using std::chrono::milliseconds;

// "cuda" is the current GPU.
c10::Device allocated_on(c10::Device device) {
  TORCH_CHECK_VALUE(device.is_cpu() || device.is_cuda(), "rondo: there is no memory on ", device,
                    ": allocate on the CPU or a CUDA GPU");
  return device.is_cuda() && !device.has_index()
             ? c10::impl::VirtualGuardImpl(device.type()).getDevice()
             : device;
}

bool has_secret_variable() {
  return std::ranges::any_of(std::array{"RONDO_SECRET", "RONDO_SECRET_FILE"}, [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
  });
}

// "" where the ranks of the group are those of the job.
std::string describe_group(const std::string& group, const std::vector<std::int64_t>& ranks) {
  bool same = true;
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    same = same && ranks[i] == static_cast<std::int64_t>(i);
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (same) return {};
  return " [process group " + group + ": ranks from 0 on are global ranks " + text + "]";
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> Backend::create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int size, milliseconds timeout,
                                                  const std::string& group,
                                                  const std::vector<std::int64_t>& global_ranks) {
  const std::string who = describe_group(group, global_ranks);
  try {
    TorchStore meeting(store);
    rondo::Options options;
    options.rank = rank;
    options.size = size;
    options.store = &meeting;
    options.interrupted = handler_raises;
    options.connect_deadline = options.deadline = limited(timeout);
    if (size > 1 && !has_secret_variable())
      options.secret =
          meeting.secret(rank, std::chrono::steady_clock::now() + options.connect_deadline);
    auto session = GroupSession::open(Communicator::connect(options), who);
    return c10::make_intrusive<Backend>(std::move(store), rank, size, timeout, std::move(session),
                                        global_ranks.empty());
  } catch (const Error& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "rondo: ", error.what(), who);
  }
}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout,
                 std::shared_ptr<GroupSession> session, bool is_default)
    : c10d::Backend(rank, size),
      store_(std::move(store)),
      options_(c10::make_intrusive<Options>(timeout)),
      session_(std::move(session)),
      is_default_(is_default) {
  init();
}

Backend::~Backend() {
  session_->close();
}

c10::intrusive_ptr<c10d::Backend> Backend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const auto own = std::ranges::find(ranks, getRank());
  if (own == ranks.end()) return nullptr;
  std::vector<std::int64_t> global(opts->global_ranks_in_group.begin(),
                                   opts->global_ranks_in_group.end());
  if (global.empty()) global.assign(ranks.begin(), ranks.end());
  return interruptible([&] {
    return create(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                  opts->timeout, opts->group_name, global);
  });
}

// The options are a copy of those of one merged group, whose global ranks do not hold here.
c10::intrusive_ptr<c10d::Backend> Backend::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts, const int& rank, const int& size) {
  std::vector<std::int64_t> own(size_cast(size));
  std::iota(own.begin(), own.end(), 0);
  return interruptible(
      [&] { return create(store->clone(), rank, size, opts->timeout, opts->group_name, own); });
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  const at::ScalarType type = options.dtype().toScalarType();
  if (!at::isComplexType(type)) return allocate(size, options);
  return allocate(2 * size, options.dtype(at::toRealValueType(type)));
}

at::Tensor Backend::allocate(std::int64_t size, const at::TensorOptions& options) {
  TORCH_CHECK_VALUE(size >= 0, "rondo: a tensor of ", size, " elements cannot be");
  const std::size_t bytes = size_cast(size) * options.dtype().itemsize();
  const c10::Device device = allocated_on(options.device());
  const auto memory = session_->use([&](Communicator& communicator) -> std::shared_ptr<Memory> {
    try {
      return std::make_shared<Memory>(
          communicator.allocate(bytes, device.is_cuda() ? device.index() : -1));
    } catch (const Error& error) {
      if (error.code() != Errc::system) throw;
      TORCH_WARN_ONCE("rondo: ", bytes, " bytes come from ordinary memory: ", error.what());
      return nullptr;
    }
  });
  if (!memory) return at::empty({size}, options);
  return at::for_blob(memory->data(), {size})
      .deleter([memory](void*) {})
      .options(options.device(device))
      .target_device(device)
      .allocator(at::GetAllocator(device.type()))  // for a tensor that outgrows this memory
      .resizeable_storage()
      .make_tensor();
}

OpOptions Backend::options_of(const GroupCall& call) const {
  OpOptions options;
  const Milliseconds time = call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  options.deadline = limited(time);
  return options;
}

void Backend::check_root(std::int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "rondo: there is no rank ", root,
                    " in this group: ranks go from 0 to ", getSize() - 1);
}

// Only barriers ask for them, so those that have ended are dropped now and then.
void Backend::remember(const c10::intrusive_ptr<PendingWork>& work) {
  if (c10d::isP2POp(work->retrieveOpType())) return;
  const std::lock_guard lock(mutex_);
  while (!collectives_.empty()) {
    const auto oldest = collectives_.front().lock();
    if (oldest && !oldest->isDone()) break;
    collectives_.pop_front();
  }
  collectives_.emplace_back(work);
}

std::vector<c10::intrusive_ptr<PendingWork>> Backend::started() {
  std::vector<c10::intrusive_ptr<PendingWork>> works;
  const std::lock_guard lock(mutex_);
  for (const auto& one : collectives_)
    if (auto work = one.lock(); work && !work->isDone()) works.push_back(std::move(work));
  return works;
}

void Backend::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
}

Backend::WorkPtr Backend::endCoalescing() {
  coalescing_ = false;
  auto works = std::exchange(coalesced_, {});
  if (works.empty()) return nullptr;
  if (works.size() == 1) return works.front();
  return c10::make_intrusive<SeveralWorks>(getRank(), std::move(works));
}

// Over the store, so that a failure leaves the communicator alone.
void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const milliseconds timeout =
      opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  MonitoredBarrier(store_->clone(), getRank(), getSize(), ++monitored_)
      .pass(timeout.count() == 0 ? timeout : limited(timeout), wait_all_ranks);
}

}  // namespace rondo::python

// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose layers and tensors are on the processor or on a GPU. A case that is the same on both
// is one test, with the tag [places].
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "bn/reference.h"
#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "support/fake_kernels.h"

namespace rondo::testing {

enum class Place { processor, gpu };

// Generates the places of this process. Over the fake driver that is a GPU alone, because another
// run has the processor. Otherwise it is the processor, and a real GPU where there is one.
inline Place each_place() {
  static const std::vector<Place> places = [] {
    const device::LoadedDriver loaded = device::load_driver();
    const bool gpu = loaded.driver && device::gpu_count(*loaded.driver) > 0;
    std::vector<Place> found;
    if (!gpu || !FakeCuda::here()) found.push_back(Place::processor);
    if (gpu) found.push_back(Place::gpu);
    return found;
  }();
  return GENERATE(from_range(places));
}

// Samples first to first + count of a batch.
struct Share {
  std::size_t first, count;
};
// Uneven parts of 8 samples for three ranks; one has none.
inline Share uneven(int rank) {
  constexpr Share shares[] = {{0, 5}, {5, 0}, {5, 3}};
  return shares[rank];
}

// A rank of a test. Thread-bound.
class Rank {
 public:
  Rank(Communicator& communicator, Place place) : c(communicator), number(communicator.rank()) {
    if (place == Place::gpu) stream.emplace(on.emplace(number % gpus_of_tests()).gpu());
  }
  // The device of layers and buffers.
  int device() const { return on ? on->gpu().ordinal() : -1; }
  SyncBatchNorm layer(std::size_t channels, BatchNormOptions options = {}) {
    options.device = device();
    SyncBatchNorm layer(c, channels, std::move(options));
    if (stream) layer.set_stream(stream->get());
    return layer;
  }
  // Waits until the layers have computed.
  void settle() const {
    if (stream) testing::settle(*on, *stream);
  }
  void read(std::span<std::byte> to, const void* from) {
    settle();
    if (on)
      on->copier.read(to, reinterpret_cast<device::Address>(from));
    else if (!to.empty())
      std::memcpy(to.data(), from, to.size());
  }
  void write(void* to, std::span<const std::byte> from) {
    settle();
    if (on)
      on->copier.write(reinterpret_cast<device::Address>(to), from);
    else if (!from.empty())
      std::memcpy(to, from.data(), from.size());
  }
  // The values of a buffer of f64 or f32.
  Numbers values(const Buffer& buffer) {
    std::vector<std::byte> bytes(buffer.count * size_of(buffer.type));
    read(bytes, buffer.data);
    return numbers({bytes.data(), buffer.count, buffer.type});
  }
  void assign(const Buffer& buffer, const Numbers& values) {
    std::vector<std::byte> bytes(buffer.count * size_of(buffer.type));
    testing::assign({bytes.data(), buffer.count, buffer.type}, values);
    write(buffer.data, bytes);
  }

  Communicator& c;
  const int number;
  std::optional<OnGpu> on;
  std::optional<device::Stream> stream;
};

// A rank's part of a batch, in memory where the rank computes, `shift` bytes behind an aligned
// address.
class Placed {
 public:
  Placed(Rank& rank, DType type, const Batch& batch, Share share,
         TensorLayout layout = TensorLayout::nchw, std::size_t shift = 0)
      : rank_(rank),
        batch_(batch),
        share_(share),
        tensor_(type, layout, batch, share.first, share.count) {
    const std::size_t bytes = tensor_.bytes().size() + shift + 1;
    if (rank.on)
      data_ = reinterpret_cast<std::byte*>(memory_.emplace(rank.on->gpu(), bytes).address());
    else
      data_ = (host_ = std::vector<std::byte>(bytes)).data();
    data_ += shift;
    rank.write(data_, std::as_bytes(std::span(tensor_.bytes())));
  }
  Activations view() const noexcept {
    return {share_.count == 0 ? nullptr : data_, share_.count, batch_.spatial};
  }
  void set(const Batch& batch) {
    tensor_.pack(batch, share_.first);
    rank_.write(data_, std::as_bytes(std::span(tensor_.bytes())));
  }
  const std::vector<unsigned char>& bytes() { return read().bytes(); }
  // Compares with this part of a whole batch. The difference in each channel is relative to the
  // largest value there.
  void expect_near(const Numbers& whole, double tolerance, const std::string& what) {
    batch_.values = whole;
    read().unpack(batch_, share_.first);
    expect_near_by_channel(batch_, whole, tolerance, what);
  }
  const Tensor& read() {
    rank_.read(std::as_writable_bytes(std::span(tensor_.bytes())), data_);
    return tensor_;
  }

 private:
  Rank& rank_;
  Batch batch_;
  Share share_;
  Tensor tensor_;
  std::vector<std::byte> host_;
  std::optional<device::DeviceMemory> memory_;
  std::byte* data_;
};

// One number for each channel, in memory where the rank computes.
class Row {
 public:
  Row(Rank& rank, DType type, const Numbers& values, std::size_t shift = 0)
      : device_(rank.device()),
        type_(type),
        count_(values.size()),
        placed_(rank, type, one_sample(values), {0, 1}, TensorLayout::nchw, shift) {}
  Buffer buffer() const { return {placed_.view().data, count_, type_, device_}; }
  Numbers values() {
    Batch batch = one_sample(Numbers(count_));
    placed_.read().unpack(batch, 0);
    return batch.values;
  }
  void set(const Numbers& values) { placed_.set(one_sample(values)); }

 private:
  static Batch one_sample(const Numbers& values) { return {1, values.size(), 1, values}; }

  int device_;
  DType type_;
  std::size_t count_;
  Placed placed_;
};

// A rank's tensors of one step.
struct Step {
  Step(Rank& rank, DType type, const Batch& in, const Batch& gradient, Share share,
       TensorLayout layout = TensorLayout::nchw)
      : x(rank, type, in, share, layout),
        dy(rank, type, gradient, share, layout),
        y(rank, type, in, share, layout),
        dx(rank, type, in, share, layout) {}
  void forward(SyncBatchNorm& layer) const { pass = layer.forward(x.view(), y.view()); }
  void backward(SyncBatchNorm& layer, const BatchNormGradients& gradients = {}) const {
    layer.backward(pass, x.view(), dy.view(), dx.view(), gradients);
  }
  Placed x, dy, y, dx;
  mutable BatchNormPass pass;  // of the last forward
};

// The gradients of gamma and beta of one call. They begin as 7, so that a missing write shows.
struct Gradients {
  Gradients(Rank& rank, std::size_t channels)
      : c(rank.c),
        gamma(rank, DType::f64, Numbers(channels, 7.0)),
        beta(rank, DType::f64, Numbers(channels, 7.0)) {}
  BatchNormGradients here(bool add = false) const { return {gamma.buffer(), beta.buffer(), add}; }
  bool are(const Numbers& of_gamma, const Numbers& of_beta) {
    return gamma.values() == of_gamma && beta.values() == of_beta;
  }
  // Returns the sum of one of them over all ranks.
  Numbers sum(Row& row) {
    Numbers sums = row.values();
    c.all_reduce(buffer_of(std::span(sums)), buffer_of(std::span(sums)), ReduceOp::sum).wait();
    return sums;
  }
  Communicator& c;
  Row gamma, beta;
};

inline Setup ranks(int size, Over over = Over::mem) {
  Setup setup;
  setup.size = size;
  setup.over = over;
  return setup;
}

// Checks that the function throws on no rank.
inline void run_on(Place place, const Setup& setup, const std::string& what,
                   const std::function<void(Rank&)>& function) {
  if (place == Place::gpu && FakeCuda::needs_kernels()) register_device_kernels(FakeCuda());
  CHECK_NOTHROW(run_communicators(setup, what + (place == Place::gpu ? " on a GPU" : ""),
                                  [&](Communicator& c, int) {
                                    Rank rank(c, place);
                                    function(rank);
                                  }));
}
inline void run_on(Place place, int size, const std::string& what,
                   const std::function<void(Rank&)>& function) {
  run_on(place, ranks(size), what, function);
}
inline void run_on_processor(int size, const std::string& what,
                             const std::function<void(Communicator&, int)>& function) {
  CHECK_NOTHROW(run_communicators(ranks(size), what, function));
}

// Returns the message of the Error with this code that the function throws. Throws
// std::runtime_error if the function throws no such Error.
inline std::string message_of(Errc code, const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    expect(error.code() == code, error.what());
    return error.what();
  }
  throw std::runtime_error("nothing was noticed");
}
inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    expect(message.find(part) != std::string::npos, part + " in " + message);
}
// Returns when the communicator has failed. For a rank that makes no call, so that another one
// waits until its deadline.
inline void wait_until_others_fail(Communicator& c) {
  std::byte done{};
  try {
    c.broadcast({&done, 1, DType::u8}, {&done, 1, DType::u8}, 0).wait();
  } catch (const Error&) {
  }
}
// Throws std::runtime_error unless the function throws Error(invalid_argument) with this text.
inline void refused(const std::string& text, const std::function<void()>& function) {
  refused(Errc::invalid_argument, text, function);
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
#include "soak/calls.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "collectives/schedules/call.h"
#include "point/messages.h"
#include "support/ranks.h"
#include "support/trial.h"

namespace rondo::testing {

namespace {

using Bytes = std::vector<std::uint8_t>;

// Draws a number of bytes: often small, sometimes a MiB.
std::size_t draw_bytes(Draw& draw) {
  return draw(
      draw.one_of<std::uint64_t>({1, 2, 100, 5000, 5000, 100'000, (std::uint64_t{1} << 20) + 1}));
}

// A tag that no other call uses: the others have small ones.
std::uint32_t draw_tag(Draw& draw) {
  return 16 + static_cast<std::uint32_t>(draw(1 << 30));
}

// A collective. Some ranks leave it.
class Collected final : public Pending {
 public:
  Collected(Communicator& communicator, const Case& what, Draw& own)
      : trial_(what, communicator.rank(), communicator.size()) {
    trial_.start(communicator);
    if (own(4) == 0) trial_.work().leave();
  }
  void finish() override {
    trial_.work().wait();
    const std::string problem = trial_.problem();
    expect(problem.empty(), problem);
  }

 private:
  Trial trial_;
};

Case draw_case(Draw& draw, int size) {
  Case what;
  what.operation = some_operation(draw(collective_count));
  what.type = static_cast<DType>(draw(dtype_count));
  do {
    what.op = static_cast<ReduceOp>(draw(reduce_op_count));
  } while (!supports(what.type, what.op));
  const std::size_t blocks =
      schedules::is_blocked(what.operation) ? static_cast<std::size_t>(size) : 1;
  what.count = draw_bytes(draw) / size_of(what.type) / blocks;
  what.root = static_cast<int>(draw(static_cast<std::uint64_t>(size)));
  what.in_place = draw(2) == 0;
  what.priority = draw(3) == 0 ? Priority::urgent : Priority::bulk;
  return what;
}

// Messages between pairs of ranks, one by one or in one batch.
class Exchanged final : public Pending {
 public:
  Exchanged(Communicator& communicator, Draw& draw, Draw& own) {
    const auto size = static_cast<std::uint64_t>(communicator.size());
    const std::uint64_t wanted = 1 + draw(8), salt = draw(1 << 30);
    for (std::uint64_t i = 0; i < wanted; ++i) {
      const Message m{static_cast<int>(draw(size)), static_cast<int>(draw(size)),
                      static_cast<std::uint32_t>(draw(3)), salt + i, draw_bytes(draw)};
      if (m.from == communicator.rank())
        sent_.emplace_back(m, content(m.from, m.to, m.number, m.bytes));
      if (m.to == communicator.rank()) received_.emplace_back(m, Bytes(m.bytes));
    }
    if (own(2) == 0)
      start_batch(communicator, own(2) == 0);
    else
      start_each(communicator, own(2) == 0);
  }
  void finish() override {
    while (!works_.empty()) {
      works_.back().wait();
      works_.pop_back();
    }
    for (const auto& [m, bytes] : received_)
      expect(bytes == content(m.from, m.to, m.number, m.bytes), "a message is damaged");
    for (const auto& [m, bytes] : sent_)
      expect(bytes == content(m.from, m.to, m.number, m.bytes), "a sent buffer has changed");
  }

 private:
  struct Message {
    int from, to;
    std::uint32_t tag;
    std::uint64_t number;
    std::size_t bytes;
  };
  void start_batch(Communicator& communicator, bool receives_first) {
    std::vector<Transfer> sends, receives;
    for (auto& [m, bytes] : sent_) sends.push_back(send_of(bytes_of(bytes), m.to, m.tag));
    for (auto& [m, bytes] : received_)
      receives.push_back(receive_of(bytes_of(bytes), m.from, m.tag));
    if (receives_first) std::swap(sends, receives);
    sends.insert(sends.end(), receives.begin(), receives.end());
    works_.push_back(communicator.batch(sends));
  }
  void start_each(Communicator& communicator, bool receives_first) {
    for (const bool receiving : {receives_first, !receives_first})
      for (auto& [m, bytes] : receiving ? received_ : sent_)
        works_.push_back(receiving ? communicator.receive(bytes_of(bytes), m.from, m.tag)
                                   : communicator.send(bytes_of(bytes), m.to, m.tag));
  }

  std::vector<std::pair<Message, Bytes>> sent_, received_;
  std::vector<Work> works_;
};

// Messages that one rank receives from any rank. The messages of each sender come in order.
class Collecting final : public Pending {
 public:
  Collecting(Communicator& communicator, Draw& draw, Draw& own)
      : rank_(communicator.rank()), counts_(static_cast<std::size_t>(communicator.size())) {
    const auto size = static_cast<std::uint64_t>(communicator.size());
    const int to = static_cast<int>(draw(size));
    const std::uint64_t wanted = 1 + draw(8);
    const std::uint32_t tag = draw_tag(draw);
    const std::size_t bytes = draw_bytes(draw);
    for (std::uint64_t i = 0; i < wanted; ++i) {
      const int from = static_cast<int>(draw(size));
      const std::uint64_t number = counts_[static_cast<std::size_t>(from)]++;
      if (from == rank_) sent_.push_back(content(from, to, number, bytes));
    }
    if (to == rank_) received_.resize(wanted, Bytes(bytes));
    OpOptions options;
    const bool receives_first = own(2) == 0;
    for (const bool receiving : {receives_first, !receives_first})
      for (Bytes& one : receiving ? received_ : sent_) {
        options.unattended = own(4) == 0;
        (receiving ? receives_ : sends_)
            .push_back(receiving ? communicator.receive_any(bytes_of(one), tag, options)
                                 : communicator.send(bytes_of(one), to, tag, options));
      }
  }
  void finish() override {
    std::vector<std::uint64_t> come(counts_.size());
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      receives_[i].wait();
      const int source = receives_[i].source();
      expect(received_[i] == content(source, rank_, come.at(static_cast<std::size_t>(source))++,
                                     received_[i].size()),
             "a message from any rank is damaged");
    }
    for (const Work& work : sends_) work.wait();
    expect(received_.empty() || come == counts_, "messages came from the wrong ranks");
  }

 private:
  int rank_;
  std::vector<std::uint64_t> counts_;  // of messages, by sender
  std::vector<Bytes> sent_, received_;
  std::vector<Work> sends_, receives_;
};

// Sums in one buffer, each with input scales: each begins when the one before has ended. Then a
// rank sends the result to another. All numbers are exact in f32.
class Chained final : public Pending {
 public:
  Chained(Communicator& communicator, Draw& draw, Draw& own)
      : values_(1 + draw_bytes(draw) / sizeof(float), static_cast<float>(communicator.rank() + 1)) {
    const int rank = communicator.rank(), size = communicator.size();
    for (const std::uint64_t sums = 1 + draw(3); works_.size() < sums;) {
      OpOptions options;
      options.priority = draw(2) == 0 ? Priority::urgent : Priority::bulk;
      options.unattended = own(4) == 0;
      float sum = 0;
      for (int from = 0; from < size; ++from) {
        const double scale = draw.one_of({1.0, 1.0, 0.5, 0.25, 2.0});
        sum +=
            static_cast<float>(scale) * (works_.empty() ? static_cast<float>(from + 1) : result_);
        if (from == rank && scale != 1) options.input_scale = scale;
      }
      result_ = sum;
      works_.push_back(
          communicator.all_reduce(whole(values_), whole(values_), ReduceOp::sum, options));
    }
    const auto sender = static_cast<int>(draw(static_cast<std::uint64_t>(size)));
    const auto receiver = static_cast<int>(draw(static_cast<std::uint64_t>(size)));
    const std::uint32_t tag = draw_tag(draw);
    if (rank == receiver) {
      copy_.resize(values_.size());
      works_.push_back(communicator.receive_any(whole(copy_), tag));
    }
    if (rank == sender) works_.push_back(communicator.send(whole(values_), receiver, tag));
  }
  void finish() override {
    for (const Work& work : works_) work.wait();
    for (const std::vector<float>* values : {&values_, &copy_})
      expect(std::ranges::all_of(*values, [&](float value) { return value == result_; }),
             "a sum of scaled inputs is wrong");
  }

 private:
  static Buffer whole(std::vector<float>& values) {
    return {values.data(), values.size(), DType::f32};
  }

  std::vector<float> values_, copy_;
  float result_ = 0;
  std::vector<Work> works_;
};

// An all_to_all_v.
class Scattered final : public Pending {
 public:
  Scattered(Communicator& communicator, Draw& draw)
      : rank_(communicator.rank()), number_(draw(1 << 30)) {
    std::vector<std::size_t> send_counts;
    const int size = communicator.size();
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) {
        const std::size_t bytes = draw_bytes(draw) / static_cast<std::size_t>(size);
        if (from == rank_) {
          send_counts.push_back(bytes);
          const Bytes part = content(from, to, number_, bytes);
          in_.insert(in_.end(), part.begin(), part.end());
        }
        if (to == rank_) receive_counts_.push_back(bytes);
      }
    std::size_t all = 0;
    for (const std::size_t bytes : receive_counts_) all += bytes;
    out_.resize(all);
    work_ = communicator.all_to_all_v(bytes_of(in_), send_counts, bytes_of(out_), receive_counts_);
  }
  void finish() override {
    work_.wait();
    auto at = out_.begin();
    int from = 0;
    for (const std::size_t bytes : receive_counts_) {
      const Bytes part = content(from++, rank_, number_, bytes);
      expect(std::equal(part.begin(), part.end(), at), "a part of all_to_all_v is damaged");
      at += static_cast<std::ptrdiff_t>(bytes);
    }
  }

 private:
  int rank_;
  std::uint64_t number_;
  std::vector<std::size_t> receive_counts_;
  Bytes in_, out_;
  Work work_;
};

// A sum in place, in memory that is freed right after it. Some ranks use ordinary memory.
class Allocated final : public Pending {
 public:
  Allocated(Communicator& communicator, Draw& draw, Draw& own) : size_(communicator.size()) {
    const std::size_t bytes = draw_bytes(draw) + sizeof(std::int32_t);
    memory_ = own(4) == 0 ? Memory(bytes) : communicator.allocate(bytes);
    for (std::size_t i = 0; i < values().size(); ++i)
      values()[i] = communicator.rank() + static_cast<std::int32_t>(i % 1009);
    const Buffer buffer = buffer_of(values());
    OpOptions options;
    options.priority = draw(3) == 0 ? Priority::urgent : Priority::bulk;
    work_ = communicator.all_reduce(buffer, buffer, ReduceOp::sum, options);
  }
  void finish() override {
    work_.wait();
    for (std::size_t i = 0; i < values().size(); ++i)
      expect(values()[i] == size_ * (size_ - 1) / 2 + size_ * static_cast<std::int32_t>(i % 1009),
             "a sum in allocated memory is wrong");
  }

 private:
  std::span<std::int32_t> values() const {
    return {static_cast<std::int32_t*>(memory_.data()), memory_.bytes() / sizeof(std::int32_t)};
  }

  int size_;
  Memory memory_;
  Work work_;
};

}  // namespace

std::unique_ptr<Pending> start_some(Communicator& communicator, Draw& draw, Draw& own) {
  switch (draw(12)) {
    case 0:
    case 1:
      return std::make_unique<Exchanged>(communicator, draw, own);
    case 2:
      return std::make_unique<Scattered>(communicator, draw);
    case 3:
      return std::make_unique<Allocated>(communicator, draw, own);
    case 4:
    case 5:
      return std::make_unique<Collecting>(communicator, draw, own);
    case 6:
      return std::make_unique<Chained>(communicator, draw, own);
    default:
      return std::make_unique<Collected>(communicator, draw_case(draw, communicator.size()), own);
  }
}

}  // namespace rondo::testing

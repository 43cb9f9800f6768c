// SPDX-License-Identifier: Apache-2.0
//
// Messages of an MPI library in the shapes of osu_latency, osu_bw, osu_bibw and osu_mbw_mr, timed
// as rondo bench times its own: built once for each installed MPI.
//
//   mpirun -n RANKS mpi_messages latency,bandwidth,... 8,1024,... ITERATIONS WARMUPS WINDOW
//
// Rank 0 prints a line for each operation and size: "latency 8 0.31", the p50 in microseconds. Rank
// i of the first half has rank i + RANKS / 2 as its peer, as in tools/measure/operation.h.
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int data_tag = 0, answer_tag = 1;

struct Plan {
  std::vector<std::string> operations;
  std::vector<std::size_t> sizes;
  int iterations = 0, warmups = 0, window = 0;
};

// Checks no return values, because MPI's default error handler ends the job with a message.
class Pair {
 public:
  Pair(std::size_t largest, int window)
      : distance_((largest + 63) / 64 * 64),
        window_(window),
        in_(distance_ * static_cast<std::size_t>(window), std::byte{1}),
        out_(in_.size(), std::byte{2}) {
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks % 2 != 0) throw std::runtime_error("the number of ranks must be even");
    first_ = rank < ranks / 2;
    peer_ = first_ ? rank + ranks / 2 : rank - ranks / 2;
  }

  // Microseconds of one iteration on this rank; 0: it times nothing.
  double iterate(const std::string& operation, int bytes) {
    if (operation == "latency") return ping_pong(bytes);
    const bool both = operation == "bibandwidth";
    return window(bytes, both || first_, both || !first_);
  }

 private:
  // Half of a round trip. The empty one before it brings the ranks into step after the barrier.
  double ping_pong(int bytes) {
    MPI_Barrier(MPI_COMM_WORLD);
    round_trip(0);
    const double begin = MPI_Wtime();
    round_trip(bytes);
    return first_ ? (MPI_Wtime() - begin) * 1e6 / 2 : 0;
  }

  void round_trip(int bytes) {
    if (first_) MPI_Send(in_.data(), bytes, MPI_BYTE, peer_, data_tag, MPI_COMM_WORLD);
    MPI_Recv(out_.data(), bytes, MPI_BYTE, peer_, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!first_) MPI_Send(in_.data(), bytes, MPI_BYTE, peer_, data_tag, MPI_COMM_WORLD);
  }

  // All receives, a barrier, all sends; then an answer in the other direction. The time is that of
  // one message.
  double window(int bytes, bool sends, bool receives) {
    requests_.clear();
    for (int i = 0; receives && i < window_; ++i)
      MPI_Irecv(out_.data() + place(i), bytes, MPI_BYTE, peer_, data_tag, MPI_COMM_WORLD, next());
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; sends && i < window_; ++i)
      MPI_Isend(in_.data() + place(i), bytes, MPI_BYTE, peer_, data_tag, MPI_COMM_WORLD, next());
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    if (receives) MPI_Send(nullptr, 0, MPI_BYTE, peer_, answer_tag, MPI_COMM_WORLD);
    if (!sends) return 0;
    MPI_Recv(nullptr, 0, MPI_BYTE, peer_, answer_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return (MPI_Wtime() - begin) * 1e6 / window_;
  }

  std::size_t place(int message) const { return static_cast<std::size_t>(message) * distance_; }
  MPI_Request* next() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  const std::size_t distance_;
  const int window_;
  std::vector<std::byte> in_, out_;
  std::vector<MPI_Request> requests_;
  bool first_ = false;
  int peer_ = 0;
};

// The time of an iteration is that of its slowest rank, the p50 the smallest time that half of them
// do not exceed.
double measure(Pair& pair, const Plan& plan, const std::string& operation, int bytes) {
  std::vector<double> times;
  for (int i = -plan.warmups; i < plan.iterations; ++i) {
    const double time = pair.iterate(operation, bytes);
    if (i >= 0) times.push_back(time);
  }
  MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  std::sort(times.begin(), times.end());
  return times[(times.size() - 1) / 2];
}

int positive(const std::string& text, int least) {
  const int value = std::atoi(text.c_str());
  if (value < least) throw std::runtime_error("not a number, or too small: " + text);
  return value;
}

Plan read(char** argv) {
  Plan plan;
  std::string word;
  for (std::istringstream words(argv[1]); std::getline(words, word, ',');)
    plan.operations.push_back(word);
  for (std::istringstream words(argv[2]); std::getline(words, word, ',');)
    plan.sizes.push_back(static_cast<std::size_t>(positive(word, 1)));
  if (plan.sizes.empty()) throw std::runtime_error("no sizes");
  plan.iterations = positive(argv[3], 1);
  plan.warmups = positive(argv[4], 0);
  plan.window = positive(argv[5], 1);
  return plan;
}

int run(char** argv) {
  const Plan plan = read(argv);
  Pair pair(*std::max_element(plan.sizes.begin(), plan.sizes.end()), plan.window);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const std::string& operation : plan.operations)
    for (const std::size_t bytes : plan.sizes) {
      const double p50 = measure(pair, plan, operation, static_cast<int>(bytes));
      if (rank == 0) std::printf("%s %zu %.4f\n", operation.c_str(), bytes, p50);
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: mpirun -n RANKS %s OPERATIONS SIZES ITERATIONS WARMUPS WINDOW (started by "
                 "bench/messages/messages.py)\n",
                 argv[0]);
    return 2;
  }
  MPI_Init(&argc, &argv);
  try {
    const int status = run(argv);
    MPI_Finalize();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
    return 2;
  }
}

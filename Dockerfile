# One Dockerfile for both worlds. Docker builds everything in the first stage:
#     docker build -t belay:dev .
# Where no base image can be pulled, buildah (or buildx) puts a folder in its place that `make image` has filled:
#     buildah build --build-context build=DIR -t belay:dev .
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN make rootfs ROOTFS=/rootfs

# No shell, no libc, no package manager: one static executable, with a hard link for each step.
FROM scratch
COPY --from=build /rootfs/ /
USER 65532:65532
# One heap for all threads: each of its own would keep what it once needed, and a step asks for 64 MB.
ENV MALLOC_ARENA_MAX=1
ENTRYPOINT ["/belay"]

export default { test: { environment: 'jsdom', include: ['test/**/*.test.ts'] } };
